#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Tensor factories.
///
/// A dtype or a device may take the place of the options: `zeros({2}, f16)`,
/// `ones({2}, Device::cuda(1))`, `arange(3, "cuda")`.
///
/// DTypes: the default is f32, unless a function says otherwise.
/// Device/stream: current stream of the chosen device (default: CPU). The host blocks only in
/// tensor(), to copy values to a GPU.
/// Throws: ShapeError for negative sizes, InvalidArgument for an invalid device or a value that the
/// dtype cannot hold, OutOfMemoryError.
/// @since 0.1
namespace gantry {

/// A tensor with uninitialized elements.
/// Example: `const Tensor x = empty({2, 3}, {.dtype = f16, .device = "cuda:0"});`
[[nodiscard]] GANTRY_API Tensor empty(const Shape& sizes, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor empty(const Shape& sizes, T option) {
  return empty(sizes, detail::only(option));
}
// These overloads are more specialized than std::empty(), which argument-dependent lookup finds for
// `empty(sizes)`.
template <class A>
[[nodiscard]] Tensor empty(const std::vector<std::int64_t, A>& sizes) {
  return empty(Shape(sizes));
}
template <std::size_t N>
[[nodiscard]] Tensor empty(const std::array<std::int64_t, N>& sizes) {
  return empty(Shape(sizes));
}
template <class T, std::size_t N>
requires std::same_as<std::remove_const_t<T>, std::int64_t>
[[nodiscard]] Tensor empty(std::span<T, N> sizes) { return empty(Shape(sizes)); }
/// A tensor with uninitialized elements and the given non-negative strides.
[[nodiscard]] GANTRY_API Tensor empty_strided(const Shape& sizes, const Dims& strides,
                                              const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor empty_strided(const Shape& sizes, const Dims& strides, T option) {
  return empty_strided(sizes, strides, detail::only(option));
}
/// A tensor of zeros.
/// Example: `const Tensor x = zeros({2, 3}, "cuda:0");`
[[nodiscard]] GANTRY_API Tensor zeros(const Shape& sizes, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor zeros(const Shape& sizes, T option) {
  return zeros(sizes, detail::only(option));
}
/// A tensor of ones.
/// Example: `const Tensor x = ones({2, 3}, "cuda:0");`
[[nodiscard]] GANTRY_API Tensor ones(const Shape& sizes, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor ones(const Shape& sizes, T option) {
  return ones(sizes, detail::only(option));
}
/// A tensor whose elements are `value`. DTypes: default bool, i64 or f32, by the value's category.
/// Example: `const Tensor x = full({2, 3}, 0.5, "cuda:0");`
[[nodiscard]] GANTRY_API Tensor full(const Shape& sizes, const Scalar& value,
                                     const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor full(const Shape& sizes, const Scalar& value, T option) {
  return full(sizes, value, detail::only(option));
}

/// A contiguous tensor with the shape of `other`. Dtype and device default to those of `other`.
[[nodiscard]] GANTRY_API Tensor empty_like(const Tensor& other, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor empty_like(const Tensor& other, T option) {
  return empty_like(other, detail::only(option));
}
/// As empty_like, with all elements 0.
[[nodiscard]] GANTRY_API Tensor zeros_like(const Tensor& other, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor zeros_like(const Tensor& other, T option) {
  return zeros_like(other, detail::only(option));
}
/// As empty_like, with all elements 1.
[[nodiscard]] GANTRY_API Tensor ones_like(const Tensor& other, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor ones_like(const Tensor& other, T option) {
  return ones_like(other, detail::only(option));
}
/// As empty_like, with all elements `value`.
[[nodiscard]] GANTRY_API Tensor full_like(const Tensor& other, const Scalar& value,
                                          const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor full_like(const Tensor& other, const Scalar& value, T option) {
  return full_like(other, value, detail::only(option));
}

/// The numbers 0, 1, … below `end`. DTypes: i64 if all arguments are integers, else f32.
/// Example: `const Tensor x = arange(0, 10, 2, "cuda:0");  // 0 2 4 6 8`
[[nodiscard]] GANTRY_API Tensor arange(const Scalar& end, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor arange(const Scalar& end, T option) {
  return arange(end, detail::only(option));
}
/// The numbers start, start + step, … before `end`. Throws: InvalidArgument if step is 0 or has the
/// wrong sign.
[[nodiscard]] GANTRY_API Tensor arange(const Scalar& start, const Scalar& end,
                                       const Scalar& step = 1, const TensorOptions& options = {});
/// arange with step 1: `arange(0, 6, {.dtype = f32})`.
[[nodiscard]] inline Tensor arange(const Scalar& start, const Scalar& end,
                                   const TensorOptions& options) {
  return arange(start, end, 1, options);
}
template <TensorOption T>
[[nodiscard]] Tensor arange(const Scalar& start, const Scalar& end, T option) {
  return arange(start, end, 1, detail::only(option));
}
template <TensorOption T>
[[nodiscard]] Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, T option) {
  return arange(start, end, step, detail::only(option));
}
/// `steps` evenly spaced numbers from start to end, inclusive. DTypes: default f32.
/// Example: `const Tensor x = linspace(0, 1, 5);  // 0 0.25 0.5 0.75 1`
[[nodiscard]] GANTRY_API Tensor linspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                                         const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor linspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                              T option) {
  return linspace(start, end, steps, detail::only(option));
}
/// base to the power of linspace(start, end, steps). DTypes: default f32.
[[nodiscard]] GANTRY_API Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                                         double base = 10, const TensorOptions& options = {});
[[nodiscard]] inline Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                                     const TensorOptions& options) {
  return logspace(start, end, steps, 10, options);
}
template <TensorOption T>
[[nodiscard]] Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                              T option) {
  return logspace(start, end, steps, 10, detail::only(option));
}
template <TensorOption T>
[[nodiscard]] Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                              double base, T option) {
  return logspace(start, end, steps, base, detail::only(option));
}
/// A matrix [n, m] (default: [n, n]) with ones on the diagonal, else 0.
/// Example: `const Tensor identity = eye(3, "cuda:0");`
[[nodiscard]] GANTRY_API Tensor eye(std::int64_t n, const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor eye(std::int64_t n, T option) {
  return eye(n, detail::only(option));
}
[[nodiscard]] GANTRY_API Tensor eye(std::int64_t n, std::int64_t m,
                                    const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor eye(std::int64_t n, std::int64_t m, T option) {
  return eye(n, m, detail::only(option));
}
/// The elements on and below a diagonal of the last two dims; 0 elsewhere. `diagonal` counts
/// upwards from the main diagonal. Aliasing: the result is new memory.
[[nodiscard]] GANTRY_API Tensor tril(const Tensor& self, std::int64_t diagonal = 0);
/// The elements on and above a diagonal, as for tril. Aliasing: the result is new memory.
[[nodiscard]] GANTRY_API Tensor triu(const Tensor& self, std::int64_t diagonal = 0);

/// A 0-dim tensor. DTypes: default bool, i64 or f32, by the value's category.
[[nodiscard]] GANTRY_API Tensor scalar_tensor(const Scalar& value,
                                              const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor scalar_tensor(const Scalar& value, T option) {
  return scalar_tensor(value, detail::only(option));
}

/// A contiguous tensor on the caller's memory, which must outlive all tensors on it.
/// Aliasing: no copy. Throws: InvalidArgument if `data` is null and the tensor has elements.
/// @code
/// std::vector<float> elements(6, 1.0F);
/// const Tensor x = from_blob(elements.data(), {2, 3});  // no copy
/// @endcode
[[nodiscard]] GANTRY_API Tensor from_blob(void* data, const Shape& sizes,
                                          const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, T option) {
  return from_blob(data, sizes, detail::only(option));
}
/// A tensor on the caller's memory with the given non-negative strides. When the last tensor on the
/// memory is destroyed, `deleter(data)` is called, if there is one. Aliasing: no copy.
[[nodiscard]] GANTRY_API Tensor from_blob(void* data, const Shape& sizes, const Dims& strides,
                                          std::function<void(void*)> deleter,
                                          const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, const Dims& strides,
                               std::function<void(void*)> deleter, T option) {
  return from_blob(data, sizes, strides, std::move(deleter), detail::only(option));
}

namespace detail {
// from_blob without strides.
[[nodiscard]] GANTRY_API Tensor dense_from_blob(void* data, const Shape& sizes,
                                                std::function<void(void*)> deleter,
                                                const TensorOptions& options);
// A tensor of elements of dtype `source` in host memory, converted and copied as `options` say.
[[nodiscard]] GANTRY_API Tensor tensor_from_host(const void* data, DType source, const Shape& sizes,
                                                 const TensorOptions& options);
// `options` whose dtype and device default to those of `other`. Throws InvalidArgument for an
// undefined one.
[[nodiscard]] GANTRY_API TensorOptions like_options(const char* op, const Tensor& other,
                                                    const TensorOptions& options);
// Throws ShapeError unless `size` equals `expected`: all rows of a list have one length.
GANTRY_API void check_row(int dim, std::size_t row, std::size_t size, std::size_t expected);

// A C++ number type that can be a tensor element.
template <class T>
concept Number = std::integral<T> || std::floating_point<T> || Float16<T> || Float8<T>;

template <class T, class Range>
Tensor tensor_from_range(const Range& values, const Shape& sizes, const TensorOptions& options) {
  const auto elements = std::make_unique<T[]>(values.size());
  std::size_t i = 0;
  for (const T value : values) elements[i++] = value;
  return tensor_from_host(elements.get(), dtype_of<T>, sizes, options);
}

// A braced list of lists of any depth, whose numbers may differ in type: `{{{{1}, {2.5}}}}`, `{}`.
class GANTRY_API NestedList {
 public:
  template <Number T>
  NestedList(T number) : dtype_(dtype_of<T>), numbers_{Scalar(number)} {}
  // Throws: ShapeError for entries of different shapes; DTypeError for types without a common one.
  NestedList(std::initializer_list<NestedList> entries);
  NestedList(const NestedList&) = delete;
  NestedList& operator=(const NestedList&) = delete;

  [[nodiscard]] Tensor tensor(const TensorOptions& options) const;

 private:
  Shape sizes_;
  std::optional<DType> dtype_;  // none without a number
  std::vector<Scalar> numbers_;
};
}  // namespace detail

/// from_blob with strides and without a deleter.
template <class T = Dims>  // a template, so that from_blob(data, sizes, {}) means options
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes,
                               const std::type_identity_t<T>& strides,
                               const TensorOptions& options = {}) {
  return from_blob(data, sizes, strides, nullptr, options);
}
template <TensorOption T>
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, const Dims& strides, T option) {
  return from_blob(data, sizes, strides, nullptr, detail::only(option));
}
/// from_blob with a deleter, for a contiguous tensor.
template <std::invocable<void*> F>
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, F deleter,
                               const TensorOptions& options = {}) {
  return detail::dense_from_blob(data, sizes, std::move(deleter), options);
}
template <std::invocable<void*> F, TensorOption T>
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, F deleter, T option) {
  return detail::dense_from_blob(data, sizes, std::move(deleter), detail::only(option));
}

/// A 0-dim tensor: `tensor(3.5)`.
///
/// DTypes: int gives i64 and double gives f32, because literals have these types. Other types keep
/// their dtype. `options` override this. The overloads below have the same rule.
/// Device/stream: the host blocks for a device tensor.
/// Example: `const Tensor x = tensor({{1, 2}, {3, 4}}, "cuda:0");`
template <detail::Number T>
[[nodiscard]] Tensor tensor(T value, const TensorOptions& options = {}) {
  return detail::tensor_from_host(&value, dtype_of<T>, {}, options);
}
/// A 1-D tensor of a list of values: `tensor({1, 2, 3})`.
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<T>(values, {static_cast<std::int64_t>(values.size())}, options);
}
/// A 2-D tensor of a list of rows: `tensor({{1, 2}, {3, 4}})`. Throws: ShapeError for ragged rows.
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                            const TensorOptions& options = {}) {
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  std::vector<T> values;
  std::size_t row = 0;
  for (const auto& values_of_row : rows) {
    detail::check_row(1, row++, values_of_row.size(), columns);
    values.insert(values.end(), values_of_row.begin(), values_of_row.end());
  }
  const Shape sizes{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)};
  return detail::tensor_from_range<T>(values, sizes, options);
}
/// A 3-D tensor of a list of matrices: `tensor({{{1, 2}}, {{3, 4}}})`. Throws: ShapeError for
/// ragged rows.
template <class T>
[[nodiscard]] Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<T>>> matrices,
    const TensorOptions& options = {}) {
  const std::size_t rows = matrices.size() == 0 ? 0 : matrices.begin()->size();
  const std::size_t columns = rows == 0 ? 0 : matrices.begin()->begin()->size();
  std::vector<T> values;
  std::size_t matrix = 0;
  for (const auto& rows_of_matrix : matrices) {
    detail::check_row(1, matrix++, rows_of_matrix.size(), rows);
    std::size_t row = 0;
    for (const auto& values_of_row : rows_of_matrix) {
      detail::check_row(2, row++, values_of_row.size(), columns);
      values.insert(values.end(), values_of_row.begin(), values_of_row.end());
    }
  }
  const Shape sizes{static_cast<std::int64_t>(matrices.size()), static_cast<std::int64_t>(rows),
                    static_cast<std::int64_t>(columns)};
  return detail::tensor_from_range<T>(values, sizes, options);
}
template <class T, TensorOption O>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, O option) {
  return tensor(values, detail::only(option));
}
template <class T, TensorOption O>
[[nodiscard]] Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, O option) {
  return tensor(rows, detail::only(option));
}
template <class T, TensorOption O>
[[nodiscard]] Tensor tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<T>>> matrices, O option) {
  return tensor(matrices, detail::only(option));
}
/// A tensor of a list of any depth: `tensor({})`, `tensor({{}, {}})`, `tensor({{{{1, 2}}}})`.
/// DTypes: numbers of different types are promoted; f32 without a number. Throws: ShapeError for
/// entries of different shapes and for more than 8 dims; DTypeError as promote_types().
[[nodiscard]] inline Tensor tensor(const detail::NestedList& list,
                                   const TensorOptions& options = {}) {
  return list.tensor(options);
}
template <TensorOption O>
[[nodiscard]] Tensor tensor(const detail::NestedList& list, O option) {
  return list.tensor(detail::only(option));
}
/// A 1-D tensor of the values of a vector, an array or a span.
template <class T>
[[nodiscard]] Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<T>(values, {static_cast<std::int64_t>(values.size())}, options);
}
template <class T, std::size_t N>
[[nodiscard]] Tensor tensor(const std::array<T, N>& values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<T>(values, {static_cast<std::int64_t>(N)}, options);
}
template <class T, std::size_t N>
[[nodiscard]] Tensor tensor(std::span<T, N> values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<std::remove_cv_t<T>>(
      values, {static_cast<std::int64_t>(values.size())}, options);
}

/// As tensor(values, options), with only a dtype or a device.
template <class T, TensorOption O>  // a number or one of these
[[nodiscard]] Tensor tensor(const T& values, O option) {
  return tensor(values, detail::only(option));
}

template <class T, detail::AnyOptions O>
Tensor Tensor::new_tensor(const T& values, O options) const {
  return gantry::tensor(values, detail::like_options("new_tensor", *this, detail::only(options)));
}
template <class T, detail::AnyOptions O>
Tensor Tensor::new_tensor(std::initializer_list<T> list, O options) const {
  return gantry::tensor(list, detail::like_options("new_tensor", *this, detail::only(options)));
}
template <class T, detail::AnyOptions O>
Tensor Tensor::new_tensor(std::initializer_list<std::initializer_list<T>> rows, O options) const {
  return gantry::tensor(rows, detail::like_options("new_tensor", *this, detail::only(options)));
}
template <class T, detail::AnyOptions O>
Tensor Tensor::new_tensor(
    std::initializer_list<std::initializer_list<std::initializer_list<T>>> matrices,
    O options) const {
  return gantry::tensor(matrices, detail::like_options("new_tensor", *this, detail::only(options)));
}
template <detail::AnyOptions O>
Tensor Tensor::new_tensor(const detail::NestedList& list, O options) const {
  return list.tensor(detail::like_options("new_tensor", *this, detail::only(options)));
}

}  // namespace gantry
