// Arrays in every layout, and one kernel call on the CPU and on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::testing {

/// The memory layout of an array.
struct Layout {
  std::string name;
  Shape sizes;
  Dims strides;
  std::int64_t offset = 0;    ///< offset of element (0, …, 0)
  std::int64_t elements = 0;  ///< size of the memory, in elements

  [[nodiscard]] std::int64_t numel() const { return sizes.product(); }
  /// The memory offset of the element with row-major index `i`.
  [[nodiscard]] std::int64_t position(std::int64_t i) const;
};

Layout contiguous(const Shape& sizes);
/// Contiguous, at `offset` elements in its memory, so that vector accesses are misaligned.
Layout shifted(const Shape& sizes, std::int64_t offset = 1);
/// Column-major: the first dim has stride 1.
Layout transposed(const Shape& sizes);
/// Every second element of the last dim of a larger array.
Layout sliced(const Shape& sizes);
/// The first dim has stride 0; for inputs only.
Layout expanded(const Shape& sizes);
/// All dims have stride 0; for inputs only.
Layout repeated(const Shape& sizes);
/// The last dim has a negative stride; for inputs only.
Layout reversed(const Shape& sizes);
std::vector<Layout> output_layouts(const Shape& sizes);
std::vector<Layout> input_layouts(const Shape& sizes);

/// Host memory as a tensor of one dtype and layout.
class Array {
 public:
  Array(DType dtype, Layout layout);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::int64_t numel() const { return layout_.numel(); }
  template <class T>
  [[nodiscard]] T get(std::int64_t i) const {
    return reinterpret_cast<const T*>(bytes_.data())[layout_.position(i)];
  }
  template <class T>
  void set(std::int64_t i, T value) {
    reinterpret_cast<T*>(bytes_.data())[layout_.position(i)] = value;
  }
  /// Bits of element `i`, zero-extended.
  [[nodiscard]] std::uint64_t bits(std::int64_t i) const;
  /// Element `i` as a double; i64 beyond 2^53 rounds.
  [[nodiscard]] double value(std::int64_t i) const;
  /// The tensor, with the memory at `base`.
  [[nodiscard]] TensorRef ref(void* base) const;
  [[nodiscard]] std::vector<std::uint8_t>& bytes() { return bytes_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  Layout layout_;
  std::vector<std::uint8_t> bytes_;
};

/// Calls a kernel with the given tensors.
using KernelCall =
    std::function<void(const kernels::Target& target, const std::vector<TensorRef>& tensors)>;

/// Runs `call` on the CPU, in place.
void run_on_cpu(std::vector<Array>& arrays, const KernelCall& call);
/// Runs `call` on a stream of cuda:0 with device copies of the arrays. Copies the results back.
void run_on_device(std::vector<Array>& arrays, const KernelCall& call);
/// Runs `call` on the CPU and, if there is one, on a device. Asserts that all memory, also between
/// the elements, has the same bytes afterwards. Returns the arrays.
std::vector<Array> run_everywhere(std::vector<Array> arrays, const KernelCall& call,
                                  const std::string& what);

/// Fills with random elements: integers of all bit patterns, floats of many magnitudes and special
/// values.
void fill_random(Array& array, std::uint32_t seed);
/// Fills with uniform numbers on [low, high].
void fill_range(Array& array, std::uint32_t seed, double low, double high);

/// Distance of two floats of `dtype`, given by their bits, in units in the last place; 0 for two
/// NaNs.
std::uint64_t ulp_distance(std::uint64_t a, std::uint64_t b, DType dtype);

inline constexpr DType kAllTypes[] = {DType::bool_, DType::u8,  DType::i8,  DType::i16,
                                      DType::i32,   DType::i64, DType::f16, DType::bf16,
                                      DType::f32,   DType::f64};
inline constexpr DType kFloatingTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
inline constexpr DType kIntegerTypes[] = {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64};

}  // namespace gantry::testing
