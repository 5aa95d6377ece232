#pragma once

#include <cstdint>
#include <span>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// Description of one contiguous view.
struct BufferView {
  const Tensor* shape = nullptr;  // the tensor whose sizes the view gets
  std::int64_t offset = 0;        // of the first element, in elements
  Tensor* out = nullptr;
};

// Makes many contiguous views of one storage. Their handles share one allocation, which lives as
// long as any of them. Precondition, unchecked: every view is within the storage.
void view_buffer(const Storage& storage, DType dtype, std::span<const BufferView> views);

}  // namespace gantry::detail
