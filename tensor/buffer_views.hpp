#pragma once

#include <cstdint>
#include <span>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// One contiguous view to be made.
struct BufferView {
  const Tensor* shape = nullptr;  // whose sizes it gets
  std::int64_t offset = 0;        // of its first element, in elements
  Tensor* out = nullptr;
};

// Makes many contiguous views of one storage at once. Their handles share one allocation, which
// lives as long as any of them. Unchecked: every view lies inside the storage.
void view_buffer(const Storage& storage, DType dtype, std::span<const BufferView> views);

}  // namespace gantry::detail
