#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <gantry/tensor/tensor.hpp>

#include "tensor/layout/buffer_views.hpp"
#include "tensor/layout/stride_algebra.hpp"

namespace gantry {

// The tensor of `storage`'s first elements, in row-major order. Precondition: the storage has room
// for `numel`, the product of `sizes`.
inline Tensor make_contiguous(Storage storage, const Shape& sizes, std::int64_t numel, DType dtype);

// What an elementwise operation on contiguous CPU tensors needs to know of one.
struct DenseElements {
  void* data = nullptr;  // null if the tensor is undefined, empty, strided or on another device
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  const Shape* sizes = nullptr;
};
inline DenseElements dense_cpu_elements(const Tensor& tensor);

// Reaches Tensor::Impl::make_views for buffer_views.cpp.
inline void make_buffer_views(const Storage& storage, DType dtype,
                              std::span<const detail::BufferView> views);

struct Tensor::Impl {
  struct Batch;

  Impl(Storage storage, const Shape& shape, const Dims& steps, std::int64_t first,
       std::int64_t count, DType type, bool is_contiguous)
      : own_storage(std::move(storage)),
        sizes(shape),
        strides(steps),
        offset(first),
        numel(count),
        dtype(type),
        contiguous(is_contiguous) {}
  /// A contiguous view of a batch.
  Impl(const Batch& batch, const Shape& shape, const Dims& steps, std::int64_t first,
       std::int64_t count, DType type);

  Storage own_storage;
  const Storage* batch_storage = nullptr;  ///< replaces own_storage in a batch
  Shape sizes;
  Dims strides;
  std::int64_t offset;
  std::int64_t numel;
  DType dtype;
  bool contiguous;
  bool is_index_copy = false;  ///< index() has gathered it: an assignment to it would be lost

  [[nodiscard]] const Storage& storage() const {
    return batch_storage != nullptr ? *batch_storage : own_storage;
  }

  // Defined in buffer_views.cpp.
  static void make_views(const Storage& storage, DType dtype,
                         std::span<const detail::BufferView> views);
  static Tensor make_dense(Storage storage, const Shape& sizes, std::int64_t numel, DType dtype) {
    return Tensor(std::make_shared<Impl>(std::move(storage), sizes,
                                         detail::contiguous_strides(sizes), 0, numel, dtype, true));
  }
  friend Tensor make_contiguous(Storage storage, const Shape& sizes, std::int64_t numel,
                                DType dtype) {
    return make_dense(std::move(storage), sizes, numel, dtype);
  }
  static DenseElements dense_elements(const Tensor& tensor) {
    const Impl* const impl = tensor.impl_.get();
    if (impl == nullptr || !impl->contiguous || impl->numel == 0) return {};
    const Storage& storage = impl->storage();
    if (!storage.device().is_cpu()) return {};
    auto* const first = static_cast<std::byte*>(storage.data());
    const auto step = static_cast<std::int64_t>(gantry::element_size(impl->dtype));
    return {first + impl->offset * step, impl->numel, impl->dtype, &impl->sizes};
  }
  friend DenseElements dense_cpu_elements(const Tensor& tensor) { return dense_elements(tensor); }
  friend void make_buffer_views(const Storage& storage, DType dtype,
                                std::span<const detail::BufferView> views) {
    make_views(storage, dtype, views);
  }
};

}  // namespace gantry
