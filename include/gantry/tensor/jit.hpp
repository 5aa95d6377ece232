#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/kernels/compile_error.hpp>
#include <gantry/tensor/tensor.hpp>

/// Elementwise functions, compiled at run time.
/// @since 0.3
namespace gantry::jit {

/// An elementwise function, made by elementwise(). A cheap handle.
///
/// Operands are tensors or numbers, in the order of the function's parameters. Parameters with
/// default values may be left out. T is the type of the operands' promoted dtype (result_type), or
/// float for f16 and bf16. Each operand is converted to T. An output of type T is stored in the
/// promoted dtype, a `bool` output as bool.
///
/// Shapes, device/stream and aliasing are those of elementwise operations (elementwise.hpp). The
/// first call with new dtypes blocks the host while the function is compiled or read from the
/// cache. It does so also if the stream is being captured.
///
/// Thread safety: any thread.
/// Throws: InvalidArgument for a wrong number of operands, ShapeError, DTypeError and
/// DeviceMismatchError as elementwise operations; CompileError; NotSupported without a compiler;
/// TimeoutError if the compiler does not end in time; Error if it cannot be run.
/// @code
/// const jit::Elementwise f =
///     jit::elementwise("template <typename T> T f(T x, T y = 1) { return x * x + y; }");
/// const Tensor z = f(ones({4}, "cuda:0"), 2);
/// @endcode
/// @since 0.3
class GANTRY_API Elementwise {
 public:
  /// Another handle to the function. A move is a copy.
  Elementwise(const Elementwise&) = default;
  Elementwise& operator=(const Elementwise&) = default;

  /// The result of a function with one output.
  /// Throws: InvalidArgument for a function with several.
  template <class... Operands>
  Tensor operator()(const Operands&... operands) const {
    const Operand list[] = {Operand(operands)...};
    return one(list);
  }
  /// All outputs.
  template <class... Operands>
  [[nodiscard]] std::vector<Tensor> multi(const Operands&... operands) const {
    const Operand list[] = {Operand(operands)...};
    return run(list);
  }
  /// Writes the outputs to `outs`. These have the outputs' shape, and dtypes to which the outputs
  /// can be cast (can_cast). They may be operands, but may not partially overlap one.
  template <class... Operands>
  void into(std::span<const Tensor> outs, const Operands&... operands) const {
    const Operand list[] = {Operand(operands)...};
    run_into(outs, list);
  }

  /// multi() for any number of operands.
  [[nodiscard]] std::vector<Tensor> run(std::span<const Operand> operands) const;
  /// into() for any number of operands.
  void run_into(std::span<const Tensor> outs, std::span<const Operand> operands) const;

  /// Name of the function.
  [[nodiscard]] const std::string& name() const noexcept;
  /// Number of inputs.
  [[nodiscard]] int inputs() const noexcept;
  /// Number of outputs.
  [[nodiscard]] int outputs() const noexcept;

 private:
  friend GANTRY_API Elementwise elementwise(std::string source);
  struct GANTRY_LOCAL Impl;
  explicit Elementwise(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  [[nodiscard]] Tensor one(std::span<const Operand> operands) const;

  std::shared_ptr<Impl> impl_;
};

/// An elementwise function from C++ source, such as
/// "template <typename T> T axpy(T x, T y, T alpha = 1) { return alpha * x + y; }".
///
/// The function is the last function template of the source; helpers may precede it. It has one
/// type parameter, and 1 to 8 inputs `T x` or `bool x`. It returns T or bool. Or it returns void,
/// and has 1 to 8 outputs `T& out` or `bool& out` after its inputs. The source names mathematical
/// functions without a namespace (`exp(x)`), includes no files, and is compiled as C++20.
///
/// NVRTC compiles it for GPUs, the system's C++ compiler for the CPU and simulated devices. Neither
/// contracts products and sums. Unlike built-in operations, the results may differ in bits between
/// them. Compiled programs are kept in the folder GANTRY_JIT_CACHE and in the process.
///
/// Throws: InvalidArgument for a source without such a function. Nothing is compiled yet.
/// @code
/// const auto square = jit::elementwise("template <typename T> T square(T x) { return x * x; }");
/// const Tensor y = square(ones({4}, "cuda:0"));
/// @endcode
[[nodiscard]] GANTRY_API Elementwise elementwise(std::string source);

/// Counts of the compilations of this process.
/// @since 0.3
struct Stats {
  std::int64_t compiled = 0;       ///< runs of a compiler
  std::int64_t loaded = 0;         ///< programs that were read from the cache instead
  std::int64_t refused_files = 0;  ///< files of the cache that were rejected, and compiled again
};

/// The counts since the process began. Thread safety: any thread.
[[nodiscard]] GANTRY_API Stats stats() noexcept;

}  // namespace gantry::jit
