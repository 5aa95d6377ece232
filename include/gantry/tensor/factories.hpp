#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include <gantry/tensor/tensor.hpp>

/// Making tensors.
///
/// DTypes: f32 unless the options or the values say otherwise.
/// Device/stream: memory and values are made on the current stream of the device asked for (default
/// CPU); the host does not block, except to move listed values to a GPU.
/// Throws: ShapeError for negative sizes, InvalidArgument for a device that is not there,
/// OutOfMemoryError.
namespace gantry {

/// Uninitialised elements.
[[nodiscard]] Tensor empty(const Shape& sizes, const TensorOptions& options = {});
/// Uninitialised elements in any layout without negative strides.
[[nodiscard]] Tensor empty_strided(const Shape& sizes, const Dims& strides,
                                   const TensorOptions& options = {});
[[nodiscard]] Tensor zeros(const Shape& sizes, const TensorOptions& options = {});
[[nodiscard]] Tensor ones(const Shape& sizes, const TensorOptions& options = {});
/// All elements `value`. DTypes: by default bool, i64 or f32 by the value's category.
[[nodiscard]] Tensor full(const Shape& sizes, const Scalar& value,
                          const TensorOptions& options = {});

/// Like `other`: its shape, and its dtype and device unless `options` say otherwise; contiguous.
[[nodiscard]] Tensor empty_like(const Tensor& other, const TensorOptions& options = {});
[[nodiscard]] Tensor zeros_like(const Tensor& other, const TensorOptions& options = {});
[[nodiscard]] Tensor ones_like(const Tensor& other, const TensorOptions& options = {});
[[nodiscard]] Tensor full_like(const Tensor& other, const Scalar& value,
                               const TensorOptions& options = {});

/// 0, 1, … before `end`. DTypes: i64 if all numbers are integers, else f32.
[[nodiscard]] Tensor arange(const Scalar& end, const TensorOptions& options = {});
/// start, start + step, … before `end`. Throws: InvalidArgument if step is 0 or leads away.
[[nodiscard]] Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1,
                            const TensorOptions& options = {});
/// As above with step 1: `arange(0, 6, {.dtype = f32})`.
[[nodiscard]] inline Tensor arange(const Scalar& start, const Scalar& end,
                                   const TensorOptions& options) {
  return arange(start, end, 1, options);
}
/// `steps` numbers from start to end, both included. DTypes: f32.
[[nodiscard]] Tensor linspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                              const TensorOptions& options = {});
/// base to the powers linspace(start, end, steps). DTypes: f32.
[[nodiscard]] Tensor logspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                              double base = 10, const TensorOptions& options = {});
/// [n, m] (default: [n, n]) with ones on the diagonal.
[[nodiscard]] Tensor eye(std::int64_t n, const TensorOptions& options = {});
[[nodiscard]] Tensor eye(std::int64_t n, std::int64_t m, const TensorOptions& options = {});
/// The elements on and below (tril) or on and above (triu) a diagonal of the last two dims; 0
/// elsewhere. New memory.
[[nodiscard]] Tensor tril(const Tensor& self, std::int64_t diagonal = 0);
[[nodiscard]] Tensor triu(const Tensor& self, std::int64_t diagonal = 0);

/// A 0-dim tensor. DTypes: by default bool, i64 or f32 by the value's category.
[[nodiscard]] Tensor scalar_tensor(const Scalar& value, const TensorOptions& options = {});

/// A tensor over memory of the caller, who keeps it alive; contiguous.
/// Aliasing: no copy. Throws: InvalidArgument if `data` is null, unless there are no elements.
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, const TensorOptions& options = {});
/// A tensor over foreign memory in any layout without negative strides; `deleter(data)`, if any,
/// runs when the last tensor on it is gone.
[[nodiscard]] Tensor from_blob(void* data, const Shape& sizes, const Dims& strides,
                               std::function<void(void*)> deleter,
                               const TensorOptions& options = {});

namespace detail {
// Elements of C++ type `source` in host memory, converted and moved to where `options` say.
[[nodiscard]] Tensor tensor_from_host(const void* data, DType source, const Shape& sizes,
                                      const TensorOptions& options);
// Throws ShapeError unless all rows have one length.
void check_row(std::size_t row, std::size_t size, std::size_t expected);

template <class T, class Range>
Tensor tensor_from_range(const Range& values, const Shape& sizes, const TensorOptions& options) {
  const auto elements = std::make_unique<T[]>(values.size());
  std::size_t i = 0;
  for (const T value : values) elements[i++] = value;
  return tensor_from_host(elements.get(), dtype_of<T>, sizes, options);
}
}  // namespace detail

/// A 1-D tensor of listed values: `tensor({1, 2, 3})`.
///
/// DTypes: bool stays bool, integers become i64, floating numbers f32, unless `options` say
/// otherwise. Device/stream: blocks for a device tensor.
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<T>(values, {static_cast<std::int64_t>(values.size())}, options);
}
/// A 2-D tensor of listed rows: `tensor({{1, 2}, {3, 4}})`. Throws: ShapeError for ragged rows.
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                            const TensorOptions& options = {}) {
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  std::vector<T> values;
  std::size_t row = 0;
  for (const auto& values_of_row : rows) {
    detail::check_row(row++, values_of_row.size(), columns);
    values.insert(values.end(), values_of_row.begin(), values_of_row.end());
  }
  const Shape sizes{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)};
  return detail::tensor_from_range<T>(values, sizes, options);
}
/// A 1-D tensor of a vector's values; dtypes as above.
template <class T>
[[nodiscard]] Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return detail::tensor_from_range<T>(values, {static_cast<std::int64_t>(values.size())}, options);
}

}  // namespace gantry
