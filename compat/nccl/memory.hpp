// Memory of ncclMemAlloc().
#pragma once

#include <cstddef>
#include <optional>

#include <gantry/tensor/tensor.hpp>

namespace gantry::nccl_api {

// Allocates `bytes` on the current device. Throws: OutOfMemoryError.
void* allocate(std::size_t bytes);
// Throws: InvalidArgument for an address that allocate() did not return.
void deallocate(void* data);
// All bytes of the allocation that has [data, data + bytes); nothing for other memory.
std::optional<Tensor> allocation_of(const void* data, std::size_t bytes);

}  // namespace gantry::nccl_api
