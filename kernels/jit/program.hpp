// The program that the compilers see for one function and one set of element types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>

#include "kernels/jit/signature.hpp"

namespace gantry::kernels::jit {

inline constexpr int kMaxOperands = kMaxInputs + kMaxOutputs;

// The arguments of a compiled program. runtime.cpp declares the same layout for the compilers.
//
// Operands are the outputs, then the inputs. Dims are in increasing order of the first output's
// stride, and merged, as in StridedPlan.
struct Parameters {
  std::int64_t numel = 0;
  std::int64_t ndim = 0;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t strides[kMaxDims][kMaxOperands] = {};
  void* data[kMaxOperands] = {};
  std::uint64_t numbers[kMaxOperands] = {};  // the bits of a number, in the compute type
  std::uint32_t divisors[kMaxDims][3] = {};  // FastDivisor of each size
};

// One input as the program reads it.
struct InputKind {
  DType dtype = DType::f32;
  bool is_number = false;  // of the compute type

  friend bool operator==(const InputKind&, const InputKind&) = default;
};

// A function and the element types of one call.
struct Specialization {
  DType compute = DType::f32;  // the promoted dtype; 16-bit floats compute as float
  std::vector<InputKind> inputs{};
  std::vector<DType> outputs{};  // as they are stored

  friend bool operator==(const Specialization&, const Specialization&) = default;
};

// The compiler's language.
enum class Language : std::uint8_t { host, cuda };

// The file that holds the user's source, as compilers name it in errors.
inline constexpr const char* kSourceFile = "source";

// Elements that one thread of a GPU handles in the dense kernel.
[[nodiscard]] int pack_size(const Specialization& types);
// The text of the main file. It includes kSourceFile.
[[nodiscard]] std::string program_text(Language language, const Signature& signature,
                                       const Specialization& types);
// "T = float": what the function's type is, for errors.
[[nodiscard]] std::string type_text(DType compute);

// The names of the compiled functions.
inline constexpr const char* kHostFunction = "gantry_jit_run";       // void(const Parameters*)
inline constexpr const char* kDenseKernel = "gantry_jit_dense";      // (Parameters)
inline constexpr const char* kStridedKernel = "gantry_jit_strided";  // (Parameters)

// The texts that every program begins with.
[[nodiscard]] std::string_view shared_headers();  // float16_bits.hpp, convert.hpp, no includes
[[nodiscard]] std::string_view prologue(Language language);
[[nodiscard]] std::string_view runtime();
[[nodiscard]] std::string_view cuda_runtime();  // behind it, for GPUs

}  // namespace gantry::kernels::jit
