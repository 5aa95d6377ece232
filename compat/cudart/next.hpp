// Calls of the CUDA runtime: carried on simulated devices, else passed on to libcudart.
#pragma once

#include <cuda_runtime_api.h>

#include "compat/cudart/error.hpp"

namespace gantry::cudart_api {

// True if this process has simulated devices.
bool is_simulated() noexcept;

// The definition of `name` behind this library's own; null if there is none.
void* next_symbol(const char* name) noexcept;

template <class Function>
Function* next_definition(const char* name) noexcept {
  return reinterpret_cast<Function*>(next_symbol(name));
}

// `function` with `stream` as its first argument.
template <class Function>
auto with_stream(Function* function, cudaStream_t stream) {
  return [function, stream](auto... arguments) { return function(stream, arguments...); };
}

}  // namespace gantry::cudart_api

// Note [Calls of the CUDA runtime]
// A program finds these definitions before libcudart's, since LD_PRELOAD names this library first.
// So does libgantry, whose driver for GPUs calls the CUDA runtime: such calls are passed on.
// Nothing that carries a call on simulated devices may therefore call the CUDA runtime.

#define GANTRY_CUDART_API extern "C" __attribute__((visibility("default")))

// Passes the call on to libcudart.
#define GANTRY_CUDART_PASS_ON(name, arguments)                      \
  static auto* const next = next_definition<decltype(name)>(#name); \
  if (next == nullptr) return cudaErrorSharedObjectSymbolNotFound;  \
  return next arguments

// Defines `name`, which `carrier` carries on simulated devices.
#define GANTRY_CUDART_CALL(name, parameters, arguments, carrier)                  \
  GANTRY_CUDART_API cudaError_t name parameters {                                 \
    if (is_simulated()) return guarded(#name, [&] { return carrier arguments; }); \
    GANTRY_CUDART_PASS_ON(name, arguments);                                       \
  }

// Defines `name` and `per_thread_name`. The latter takes a null `stream`, one of the parameters,
// for the calling thread's default stream.
#define GANTRY_CUDART_STREAM_CALL(name, parameters, arguments, carrier) \
  GANTRY_CUDART_CALL(name, parameters, arguments, carrier)              \
  GANTRY_CUDART_API cudaError_t name##_ptsz parameters {                \
    if (is_simulated()) {                                               \
      return guarded(#name, [&] {                                       \
        if (stream == nullptr) stream = cudaStreamPerThread;            \
        return carrier arguments;                                       \
      });                                                               \
    }                                                                   \
    GANTRY_CUDART_PASS_ON(name##_ptsz, arguments);                      \
  }

// Defines `name`, which uses the default stream. `carrier` takes the stream in front of
// `arguments`.
#define GANTRY_CUDART_DEFAULT_STREAM_CALL(name, parameters, arguments, carrier)                   \
  GANTRY_CUDART_API cudaError_t name parameters {                                                 \
    if (is_simulated()) {                                                                         \
      return guarded(#name, [&] { return with_stream(carrier, nullptr) arguments; });             \
    }                                                                                             \
    GANTRY_CUDART_PASS_ON(name, arguments);                                                       \
  }                                                                                               \
  GANTRY_CUDART_API cudaError_t name##_ptds parameters {                                          \
    if (is_simulated()) {                                                                         \
      return guarded(#name, [&] { return with_stream(carrier, cudaStreamPerThread) arguments; }); \
    }                                                                                             \
    GANTRY_CUDART_PASS_ON(name##_ptds, arguments);                                                \
  }
