#include "tensor/impl/buffer_views.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "tensor/impl/stride_algebra.hpp"
#include "tensor/impl/tensor_impl.hpp"

namespace gantry {

namespace {

// A free list for the memory of batches. A batch takes tens of kilobytes per call. Without the free
// list, the C library returns those pages to the system, and each next use costs a page fault.
class BatchMemory {
 public:
  static BatchMemory& instance() {
    static auto& memory = *new BatchMemory();  // handles may outlive static destructors
    return memory;
  }

  void* allocate(std::size_t bytes) {
    const int size_class = class_of(bytes);
    if (size_class < kClasses) {
      const std::lock_guard lock(mutex_);
      Stack& stack = stacks_[static_cast<std::size_t>(size_class)];
      if (stack.count > 0) return stack.kept[--stack.count];
    }
    return ::operator new (std::size_t{1} << size_class);
  }
  void deallocate(void* data, std::size_t bytes) noexcept {
    const int size_class = class_of(bytes);
    if (size_class < kClasses) {
      const std::lock_guard lock(mutex_);
      Stack& stack = stacks_[static_cast<std::size_t>(size_class)];
      if (stack.count < kDepth) {
        stack.kept[stack.count++] = data;
        return;
      }
    }
    ::operator delete(data);
  }

 private:
  static constexpr int kClasses = 18;  // blocks of up to 128 KiB are kept
  static constexpr std::size_t kDepth = 16;

  struct Stack {
    std::array<void*, kDepth> kept{};
    std::size_t count = 0;
  };

  static int class_of(std::size_t bytes) { return std::bit_width(bytes - 1); }

  std::mutex mutex_;
  std::array<Stack, kClasses> stacks_{};
};

template <class T>
struct BatchAllocator {
  using value_type = T;

  BatchAllocator() = default;
  template <class Other>
  BatchAllocator(const BatchAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(BatchMemory::instance().allocate(count * sizeof(T)));
  }
  void deallocate(T* data, std::size_t count) noexcept {
    BatchMemory::instance().deallocate(data, count * sizeof(T));
  }
  friend bool operator==(const BatchAllocator&, const BatchAllocator&) { return true; }
};

}  // namespace

// The views of a batch share one Storage handle, because ref-counting dominates their cost.
struct Tensor::Impl::Batch {
  Storage storage;
  std::vector<Impl, BatchAllocator<Impl>> impls;  // never reallocates: views point into it
};

Tensor::Impl::Impl(const Batch& batch, const Shape& shape, const Dims& steps, std::int64_t first,
                   std::int64_t count, DType type)
    : batch_storage(&batch.storage),
      sizes(shape),
      strides(steps),
      offset(first),
      numel(count),
      dtype(type),
      contiguous(true),
      on_cpu(batch.storage.device().is_cpu()),
      data(first_element(batch.storage)) {}

void Tensor::Impl::make_views(const Storage& storage, DType dtype,
                              std::span<const detail::BufferView> views) {
  const auto batch = std::allocate_shared<Batch>(BatchAllocator<Batch>());
  batch->storage = storage;
  batch->impls.reserve(views.size());
  for (const detail::BufferView& view : views) {
    const Impl& shape = *view.shape->impl_;
    const Impl& made = batch->impls.emplace_back(
        *batch, shape.sizes,
        shape.contiguous ? shape.strides : detail::contiguous_strides(shape.sizes), view.offset,
        shape.numel, dtype);
    view.out->impl_ = std::shared_ptr<const Impl>(batch, &made);
  }
}

namespace detail {

void view_buffer(const Storage& storage, DType dtype, std::span<const BufferView> views) {
  if (!views.empty()) make_buffer_views(storage, dtype, views);
}

}  // namespace detail

}  // namespace gantry
