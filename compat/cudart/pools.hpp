// Stream-ordered memory and the pool of each device.
#pragma once

namespace gantry::cudart_api {

// Frees memory of cudaMallocAsync() after all work of its device. False for other memory.
bool deallocate_pooled(int device, void* data);

}  // namespace gantry::cudart_api
