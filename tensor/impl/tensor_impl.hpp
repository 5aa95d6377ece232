#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <gantry/tensor/tensor.hpp>

#include "core/thread_free_list.hpp"
#include "tensor/impl/buffer_views.hpp"
#include "tensor/impl/stride_algebra.hpp"

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
        contiguous(is_contiguous),
        on_cpu(own_storage.device().is_cpu()),
        data(first_element(own_storage)) {}
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
  bool on_cpu;
  void* data;                  ///< the first element; null if the storage has no memory
  bool is_index_copy = false;  ///< index() has gathered it: an assignment to it would be lost

  [[nodiscard]] const Storage& storage() const {
    return batch_storage != nullptr ? *batch_storage : own_storage;
  }
  [[nodiscard]] void* first_element(const Storage& memory) const {
    auto* const base = static_cast<std::byte*>(memory.data());
    if (base == nullptr) return nullptr;
    return base + offset * static_cast<std::int64_t>(gantry::element_size(dtype));
  }

  // Defined in buffer_views.cpp.
  static void make_views(const Storage& storage, DType dtype,
                         std::span<const detail::BufferView> views);
  // The tensor of an Impl with these arguments of its constructor.
  template <class... Arguments>
  static Tensor make(Arguments&&... arguments) {
    return Tensor(std::allocate_shared<Impl>(ThreadFreeListAllocator<Impl>(),
                                             std::forward<Arguments>(arguments)...));
  }
  static Tensor make_dense(Storage storage, const Shape& sizes, std::int64_t numel, DType dtype) {
    return make(std::move(storage), sizes, detail::contiguous_strides(sizes), 0, numel, dtype,
                true);
  }
  friend Tensor make_contiguous(Storage storage, const Shape& sizes, std::int64_t numel,
                                DType dtype) {
    return make_dense(std::move(storage), sizes, numel, dtype);
  }
  static DenseElements dense_elements(const Tensor& tensor) {
    const Impl* const impl = tensor.impl_.get();
    if (impl == nullptr || !impl->contiguous || !impl->on_cpu || impl->numel == 0) return {};
    return {impl->data, impl->numel, impl->dtype, &impl->sizes};
  }
  friend DenseElements dense_cpu_elements(const Tensor& tensor) { return dense_elements(tensor); }
  friend void make_buffer_views(const Storage& storage, DType dtype,
                                std::span<const detail::BufferView> views) {
    make_views(storage, dtype, views);
  }
};

}  // namespace gantry
