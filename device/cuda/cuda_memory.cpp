#include <fmt/format.h>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {

namespace {

// An allocation that does not fit is an answer, not an error. True if `status` says so.
bool is_out_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) return false;
  cuda::clear_error();
  return true;
}

}  // namespace

void* CudaDriver::allocate(int device, std::size_t bytes) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (is_out_of_memory(status)) return nullptr;
  GANTRY_CUDA_CHECK_STATUS(status, "cudaMalloc", fmt::format("allocating {} bytes", bytes), device);
  return data;
}

void CudaDriver::deallocate(int device, void* data) {
  if (data == nullptr) return;
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaFree(data), fmt::format("freeing {}", fmt::ptr(data)), device);
}

void* CudaDriver::allocate_pinned(std::size_t bytes) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (is_out_of_memory(status)) return nullptr;
  GANTRY_CUDA_CHECK_STATUS(status, "cudaHostAlloc",
                           fmt::format("allocating {} bytes of pinned memory", bytes));
  return data;
}

void CudaDriver::deallocate_pinned(void* data) {
  if (data == nullptr) return;
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaFreeHost(data), fmt::format("freeing pinned {}", fmt::ptr(data)));
}

bool CudaDriver::register_host(void* data, std::size_t bytes) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  const cudaError_t status =
      cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (is_out_of_memory(status)) return false;
  GANTRY_CUDA_CHECK_STATUS(status, "cudaHostRegister",
                           fmt::format("page-locking {} bytes at {}", bytes, fmt::ptr(data)));
  return true;
}

void CudaDriver::unregister_host(void* data) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaHostUnregister(data),
                         fmt::format("unlocking the pages at {}", fmt::ptr(data)));
}

PointerInfo CudaDriver::pointer_info(const void* data) {
  // Unlike cudaPointerGetAttributes this creates no context and takes any pointer.
  unsigned type = 0;
  int device = -1;
  int is_plain = 0;  // made by cudaMalloc, neither mapped nor a pool's
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* answers[] = {&type, &device, &is_plain};
  GANTRY_CUDA_CHECK(
      cuda::api().cuPointerGetAttributes(3, wanted, answers, reinterpret_cast<CUdeviceptr>(data)),
      fmt::format("asking about pointer {}", fmt::ptr(data)));
  if (type == CU_MEMORYTYPE_DEVICE) return {PointerKind::device, device, is_plain != 0};
  if (type == CU_MEMORYTYPE_HOST) return {PointerKind::pinned};
  return {};
}

}  // namespace gantry
