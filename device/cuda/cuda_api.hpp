#pragma once

#include <cuda.h>

#include <cstddef>

namespace gantry::cuda {

/// Every function of the CUDA driver library that gantry calls, by name.
#define GANTRY_CUDA_DRIVER_FUNCTIONS(X) \
  X(cuCtxGetCurrent)                    \
  X(cuCtxPopCurrent)                    \
  X(cuCtxPushCurrent)                   \
  X(cuDeviceGetAttribute)               \
  X(cuDevicePrimaryCtxGetState)         \
  X(cuDevicePrimaryCtxRetain)           \
  X(cuEventCreate)                      \
  X(cuEventDestroy)                     \
  X(cuEventElapsedTime)                 \
  X(cuEventQuery)                       \
  X(cuEventRecord)                      \
  X(cuEventRecordWithFlags)             \
  X(cuEventSynchronize)                 \
  X(cuGraphRetainUserObject)            \
  X(cuLaunchHostFunc)                   \
  X(cuLaunchKernel)                     \
  X(cuMemAddressFree)                   \
  X(cuMemAddressReserve)                \
  X(cuMemCreate)                        \
  X(cuMemExportToShareableHandle)       \
  X(cuMemGetAllocationGranularity)      \
  X(cuMemImportFromShareableHandle)     \
  X(cuMemMap)                           \
  X(cuMemRelease)                       \
  X(cuMemSetAccess)                     \
  X(cuMemUnmap)                         \
  X(cuModuleGetFunction)                \
  X(cuModuleLoadData)                   \
  X(cuPointerGetAttributes)             \
  X(cuStreamCreateWithPriority)         \
  X(cuStreamDestroy)                    \
  X(cuStreamGetId)                      \
  X(cuStreamIsCapturing)                \
  X(cuStreamQuery)                      \
  X(cuStreamSynchronize)                \
  X(cuStreamWaitEvent)                  \
  X(cuStreamWaitValue32)                \
  X(cuThreadExchangeStreamCaptureMode)  \
  X(cuUserObjectCreate)                 \
  X(cuUserObjectRelease)

/// Note [Driver API]
/// libcuda is never linked, because a program must start on a machine without it. The runtime
/// returns the addresses of its functions. gantry uses the driver API wherever a call needs no
/// current device: the runtime would first create an unwanted context on the thread's current
/// device.
struct DriverApi {
#define GANTRY_DECLARE(name) decltype(&::name) name = nullptr;
  GANTRY_CUDA_DRIVER_FUNCTIONS(GANTRY_DECLARE)
#undef GANTRY_DECLARE

  // In the form of CUDA 12, whatever cuda.h declares: CUDA 13 has other parameters.
  CUresult (*stream_get_capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                      const CUgraphNode**, std::size_t*) = nullptr;
  CUresult (*stream_update_capture_dependencies)(CUstream, CUgraphNode*, std::size_t,
                                                 unsigned) = nullptr;
};

/// The table, filled at the first call. Throws: CudaError if a function is missing.
[[nodiscard]] const DriverApi& api();

}  // namespace gantry::cuda
