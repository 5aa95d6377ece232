// Stream-ordered memory and the pool of each device.
#pragma once

namespace gantry::cudart_api {

// Frees memory of cudaMallocAsync() after all work of its device. False for other memory.
bool deallocate_pooled(int device, void* data);
// True if the memory at `data` is in use and belongs to a pool.
bool is_pooled(const void* data);
// True for equal devices, and where cudaMemPoolSetAccess() has granted `device` the pool of `peer`.
bool reaches_pool(int device, int peer);

}  // namespace gantry::cudart_api
