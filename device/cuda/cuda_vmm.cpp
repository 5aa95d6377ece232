#include <fcntl.h>
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {

namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp chunk_properties(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = kDescriptor;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

CUmemGenericAllocationHandle handle_of(NativeChunk chunk) {
  return static_cast<CUmemGenericAllocationHandle>(chunk);
}

CUdeviceptr address_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

std::string range_text(const char* doing, const void* address, std::size_t bytes) {
  return fmt::format("{} {} bytes at {}", doing, bytes, fmt::ptr(address));
}

}  // namespace

bool CudaDriver::supports_virtual_memory(int device) {
  const cuda::ContextScope scope(device);
  int supported = 0;
  int exportable = 0;
  GANTRY_CUDA_CHECK(
      cuda::api().cuDeviceGetAttribute(
          &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
      "asking for virtual memory calls", device);
  GANTRY_CUDA_CHECK(
      cuda::api().cuDeviceGetAttribute(
          &exportable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device),
      "asking for chunks that can be exported", device);
  return supported != 0 && exportable != 0;
}

std::size_t CudaDriver::chunk_granularity(int device) {
  const cuda::ContextScope scope(device);
  const CUmemAllocationProp properties = chunk_properties(device);
  std::size_t granularity = 0;
  GANTRY_CUDA_CHECK(cuda::api().cuMemGetAllocationGranularity(&granularity, &properties,
                                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                    "reading the chunk granularity", device);
  return granularity;
}

void* CudaDriver::reserve_address(std::size_t bytes, std::size_t alignment) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  CUdeviceptr address = 0;
  GANTRY_CUDA_CHECK(cuda::api().cuMemAddressReserve(&address, bytes, alignment, 0, 0),
                    fmt::format("reserving {} bytes of address space", bytes));
  return reinterpret_cast<void*>(address);
}

void CudaDriver::free_address(void* address, std::size_t bytes) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cuda::api().cuMemAddressFree(address_of(address), bytes),
                         range_text("freeing the address space of", address, bytes));
}

NativeChunk CudaDriver::create_chunk(int device, std::size_t bytes) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  const CUmemAllocationProp properties = chunk_properties(device);
  CUmemGenericAllocationHandle handle = 0;
  const auto status =
      static_cast<cudaError_t>(cuda::api().cuMemCreate(&handle, bytes, &properties, 0));
  if (status == cudaErrorMemoryAllocation) return NativeChunk::none;
  GANTRY_CUDA_CHECK_STATUS(status, "cuMemCreate",
                           fmt::format("creating a chunk of {} bytes", bytes), device);
  return static_cast<NativeChunk>(handle);
}

void CudaDriver::release_chunk(NativeChunk chunk) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cuda::api().cuMemRelease(handle_of(chunk)), "releasing a chunk");
}

void CudaDriver::map_chunk(void* address, std::size_t bytes, NativeChunk chunk) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK(cuda::api().cuMemMap(address_of(address), bytes, 0, handle_of(chunk), 0),
                    range_text("mapping a chunk to", address, bytes));
}

void CudaDriver::unmap(void* address, std::size_t bytes) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cuda::api().cuMemUnmap(address_of(address), bytes),
                         range_text("unmapping", address, bytes));
}

void CudaDriver::set_access(void* address, std::size_t bytes, std::span<const int> devices) {
  if (devices.empty()) return;
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  GANTRY_CUDA_CHECK(
      cuda::api().cuMemSetAccess(address_of(address), bytes, access.data(), access.size()),
      range_text("opening to devices", address, bytes));
}

UniqueFd CudaDriver::export_chunk(NativeChunk chunk) {
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  int descriptor = -1;
  GANTRY_CUDA_CHECK(
      cuda::api().cuMemExportToShareableHandle(&descriptor, handle_of(chunk), kDescriptor, 0),
      "exporting a chunk");
  (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return UniqueFd(descriptor);
}

NativeChunk CudaDriver::import_chunk(int device, int descriptor, std::size_t bytes) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  CUmemGenericAllocationHandle handle = 0;
  GANTRY_CUDA_CHECK(
      cuda::api().cuMemImportFromShareableHandle(
          &handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)), kDescriptor),
      fmt::format("importing a chunk of {} bytes from descriptor {}", bytes, descriptor), device);
  return static_cast<NativeChunk>(handle);
}

}  // namespace gantry
