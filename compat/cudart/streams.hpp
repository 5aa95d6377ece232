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
// Work of the legacy default stream begins after all earlier work of the device's blocking streams.
// These are the streams without cudaStreamNonBlocking, and the default stream of each thread. Their
// later work begins after it. The driver knows no such order, so each submission makes its part
// with events. A blocking stream that gets no new work waits for nothing, and a query finds it
// complete, as on GPUs. gantry's library for NCCL's programs asks for the order of its own work by
// gantry_cudart_before_work().

// Makes the legacy default stream of `device` wait for the work of its blocking streams.
// Throws: CudaError 906 if one of them is being captured.
void await_blocking_streams(int device);
// Makes later work of `stream`, the driver's `native`, wait for the work that must come before it.
// Throws: as await_blocking_streams().
void order_later_work(cudaStream_t stream, NativeStream native);

// To be called behind work of `stream`, for later work of the legacy default stream.
void note_work(cudaStream_t stream, NativeStream native);

// Calls `work(native_stream(stream))`, which submits work to that stream.
template <class Work>
void submit(cudaStream_t stream, Work work) {
  const NativeStream native = native_stream(stream);
  order_later_work(stream, native);
  work(native);
  note_work(stream, native);
}

// Blocks the host until all work of `stream` is complete.
void synchronize(cudaStream_t stream);

}  // namespace gantry::cudart_api
