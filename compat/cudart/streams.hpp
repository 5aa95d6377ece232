// Streams of the program, and their order with the legacy default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <gantry/extend/driver.hpp>

namespace gantry::cudart_api {

// The driver's stream. The default streams belong to the current device.
// Throws: Refusal for a handle that the program does not have.
NativeStream native_stream(cudaStream_t stream);

bool is_legacy(cudaStream_t stream);

// Note [Legacy default stream]
// Work of the legacy default stream begins after all earlier work of the device's blocking streams,
// which are those without cudaStreamNonBlocking. Their later work begins after it. The driver knows
// no such order, so events make it here. Work that NCCL's functions submit to the legacy default
// stream has half of it: it does not wait for the blocking streams.

// Makes the legacy default stream of `device` wait for the work of its blocking streams.
// Throws: CudaError 906 if one of them is being captured.
void await_blocking_streams(int device);
// Makes the blocking streams of `device` wait for the work of its legacy default stream.
void hold_blocking_streams(int device);

// Calls `work(native_stream(stream))`, which submits work to that stream.
template <class Work>
void submit(cudaStream_t stream, Work work) {
  const NativeStream native = native_stream(stream);
  if (!is_legacy(stream)) return work(native);
  await_blocking_streams(native.device);
  work(native);
  hold_blocking_streams(native.device);
}

// Blocks the host until all work of `stream` is complete.
void synchronize(cudaStream_t stream);

}  // namespace gantry::cudart_api
