#include <fmt/format.h>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_fault.hpp"
#include "device/cuda/cuda_pool.hpp"

namespace gantry {

namespace {

// An instance of a divided GPU has a UUID of its own, and is told apart by its name alone: "NVIDIA
// H200 MIG 1g.18gb".
std::string uuid_text(const cudaUUID_t& uuid, const std::string& name) {
  std::string text = name.find(" MIG ") != std::string::npos ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

int CudaDriver::device_count() { return device_count_; }

DeviceProperties CudaDriver::properties(int device) {
  cudaDeviceProp found{};
  GANTRY_CUDA_CHECK(cudaGetDeviceProperties(&found, device), "reading the properties", device);
  DeviceProperties result;
  result.name = found.name;
  result.uuid = uuid_text(found.uuid, found.name);
  result.pci_bus_id =
      fmt::format("{:04x}:{:02x}:{:02x}.0", found.pciDomainID, found.pciBusID, found.pciDeviceID);
  result.major = found.major;
  result.minor = found.minor;
  result.total_memory = found.totalGlobalMem;
  result.multiprocessors = found.multiProcessorCount;
  result.l2_bytes = static_cast<std::size_t>(found.l2CacheSize);
  result.warp_size = found.warpSize;
  result.max_threads_per_block = found.maxThreadsPerBlock;
  result.max_threads_per_multiprocessor = found.maxThreadsPerMultiProcessor;
  result.shared_memory_per_block = found.sharedMemPerBlock;
  result.shared_memory_per_block_optin = found.sharedMemPerBlockOptin;
  result.integrated = found.integrated != 0;
  result.can_map_host_memory = found.canMapHostMemory != 0;
  return result;
}

NativeMemoryInfo CudaDriver::memory_info(int device) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  NativeMemoryInfo info;
  GANTRY_CUDA_CHECK(cudaMemGetInfo(&info.free, &info.total), "reading the free memory", device);
  return info;
}

int CudaDriver::current_device() { return cuda::current_device(); }

void CudaDriver::set_device(int device) { cuda::set_device(device); }

void CudaDriver::restore_device(int device) noexcept { cuda::restore_device(device); }

void CudaDriver::synchronize_device(int device) {
  const cuda::ContextScope scope(device);
  GANTRY_CUDA_CHECK(cudaDeviceSynchronize(), "synchronizing with all streams", device);
  cuda::raise_fault(device);
}

bool CudaDriver::can_access_peer(int from, int to) {
  int access = 0;
  GANTRY_CUDA_CHECK(cudaDeviceCanAccessPeer(&access, from, to),
                    fmt::format("asking for peer access to cuda:{}", to), from);
  return access != 0;
}

bool CudaDriver::has_peer_atomics(int from, int to) {
  if (from == to) return true;
  int atomics = 0;
  GANTRY_CUDA_CHECK(
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to),
      fmt::format("asking what the link to cuda:{} carries", to), from);
  return atomics != 0;
}

void CudaDriver::enable_peer_access(int from, int to) {
  const cuda::ContextScope scope(from);
  const cuda::RelaxedCaptureScope relaxed;
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cuda::clear_error();
  } else {
    GANTRY_CUDA_CHECK_STATUS(status, "cudaDeviceEnablePeerAccess",
                             fmt::format("enabling peer access to cuda:{}", to), from);
  }
  cuda::open_pool(to, from);
}

}  // namespace gantry
