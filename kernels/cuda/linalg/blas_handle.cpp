#include "kernels/linalg/cuda_blas_handle.hpp"

#include <cublas_v2.h>
#include <fmt/format.h>

#include <map>
#include <memory>

#include <gantry/core/error.hpp>

#include "core/files/loaded_library.hpp"
#include "kernels/cuda/linalg/cublaslt.hpp"

namespace gantry::kernels::cuda {
namespace {

struct Cublas : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  decltype(&cublasCreate_v2) create = bind("cublasCreate_v2");
  decltype(&cublasDestroy_v2) destroy = bind("cublasDestroy_v2");
  decltype(&cublasSetStream_v2) set_stream = bind("cublasSetStream_v2");
  decltype(&cublasGetStatusName) status_name = bind("cublasGetStatusName");
  decltype(&cublasGetStatusString) status_string = bind("cublasGetStatusString");
};

const Cublas& cublas() {
  static const auto& loaded = *new LoadedLibrary<Cublas>(load_cublas("cublas"));
  return loaded.require("current_blas_handle");
}

void check(cublasStatus_t status, const char* doing, Device device) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const Cublas& functions = cublas();
  throw CublasError(fmt::format("current_blas_handle: failed to {}: {} ({}): {}", doing,
                                functions.status_name(status), static_cast<int>(status),
                                functions.status_string(status)),
                    device.str());
}

// The handles of one thread, by device.
struct ThreadHandles {
  ThreadHandles() = default;
  ~ThreadHandles() {
    if (in_bad_fork()) return;
    for (const auto& [device, handle] : by_device) {
      if (handle != nullptr) (void)cublas().destroy(handle);
    }
  }
  ThreadHandles(const ThreadHandles&) = delete;
  ThreadHandles& operator=(const ThreadHandles&) = delete;

  std::map<int, cublasHandle_t> by_device;
};

}  // namespace

void* blas_handle(const Stream& stream) {
  const Cublas& functions = cublas();
  thread_local const auto handles = std::make_unique<ThreadHandles>();
  cublasHandle_t& handle = handles->by_device[stream.device().index];
  if (handle == nullptr) check(functions.create(&handle), "create a handle", stream.device());
  check(functions.set_stream(handle, static_cast<cudaStream_t>(stream.native_handle())),
        "set the stream", stream.device());
  return handle;
}

}  // namespace gantry::kernels::cuda
