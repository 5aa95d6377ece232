#include "compat/cudart/device_facts.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/error.hpp"

namespace gantry::cudart_api {

namespace {

// Limits of every GPU since compute capability 3.5.
constexpr int kMaxBlock[] = {1024, 1024, 64};
constexpr int kMaxGrid[] = {2147483647, 65535, 65535};
constexpr int kRegisters = 65536;
constexpr int kMaxPitch = 2147483647;

// "GPU-" and 32 hexadecimal digits with dashes between.
cudaUUID_t uuid_of(const std::string& text) {
  cudaUUID_t uuid{};
  std::string digits = text.substr(std::min(text.size(), text.find('-')));
  std::erase(digits, '-');
  for (std::size_t i = 0; i < sizeof(uuid.bytes) && 2 * i + 2 <= digits.size(); ++i) {
    unsigned byte = 0;
    if (std::sscanf(digits.c_str() + 2 * i, "%2x", &byte) != 1) break;
    uuid.bytes[i] = static_cast<char>(byte);
  }
  return uuid;
}

}  // namespace

int checked_device(int device) {
  expect(device >= 0 && device < driver().device_count(), cudaErrorInvalidDevice,
         "there is no such device");
  return device;
}

cudaDeviceProp runtime_properties(int device) {
  const DeviceProperties facts = driver().properties(device);
  cudaDeviceProp made{};
  facts.name.copy(made.name, sizeof(made.name) - 1);
  made.uuid = uuid_of(facts.uuid);
  made.totalGlobalMem = facts.total_memory;
  made.sharedMemPerBlock = facts.shared_memory_per_block;
  made.sharedMemPerBlockOptin = facts.shared_memory_per_block_optin;
  made.sharedMemPerMultiprocessor = facts.shared_memory_per_block_optin;
  made.regsPerBlock = made.regsPerMultiprocessor = kRegisters;
  made.warpSize = facts.warp_size;
  made.memPitch = kMaxPitch;
  made.maxThreadsPerBlock = facts.max_threads_per_block;
  made.maxThreadsPerMultiProcessor = facts.max_threads_per_multiprocessor;
  std::ranges::copy(kMaxBlock, made.maxThreadsDim);
  std::ranges::copy(kMaxGrid, made.maxGridSize);
  made.major = facts.major;
  made.minor = facts.minor;
  made.multiProcessorCount = facts.multiprocessors;
  made.l2CacheSize = static_cast<int>(facts.l2_bytes);
  made.integrated = facts.integrated ? 1 : 0;
  made.canMapHostMemory = facts.can_map_host_memory ? 1 : 0;
  made.canUseHostPointerForRegisteredMem = made.canMapHostMemory;
  made.hostRegisterSupported = 1;
  made.unifiedAddressing = 1;
  made.managedMemory = made.concurrentManagedAccess = 1;
  made.concurrentKernels = 1;
  made.streamPrioritiesSupported = 1;
  made.asyncEngineCount = 1;
  made.memoryPoolsSupported = driver().supports_memory_pools(device) ? 1 : 0;
  made.ipcEventSupported = 1;
  made.deviceNumaId = made.hostNumaId = -1;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (std::sscanf(facts.pci_bus_id.c_str(), "%x:%x:%x", &domain, &bus, &slot) == 3) {
    made.pciDomainID = static_cast<int>(domain);
    made.pciBusID = static_cast<int>(bus);
    made.pciDeviceID = static_cast<int>(slot);
  }
  return made;
}

int runtime_attribute(cudaDeviceAttr which, int device) {
  const cudaDeviceProp facts = runtime_properties(device);
  const std::pair<cudaDeviceAttr, int> known[] = {
      {cudaDevAttrMaxThreadsPerBlock, facts.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, facts.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, facts.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, facts.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, facts.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, facts.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, facts.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(facts.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(facts.sharedMemPerBlockOptin)},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor,
       static_cast<int>(facts.sharedMemPerMultiprocessor)},
      {cudaDevAttrMaxRegistersPerBlock, facts.regsPerBlock},
      {cudaDevAttrMaxRegistersPerMultiprocessor, facts.regsPerMultiprocessor},
      {cudaDevAttrWarpSize, facts.warpSize},
      {cudaDevAttrMaxPitch, kMaxPitch},
      {cudaDevAttrMultiProcessorCount, facts.multiProcessorCount},
      {cudaDevAttrMaxThreadsPerMultiProcessor, facts.maxThreadsPerMultiProcessor},
      {cudaDevAttrL2CacheSize, facts.l2CacheSize},
      {cudaDevAttrIntegrated, facts.integrated},
      {cudaDevAttrCanMapHostMemory, facts.canMapHostMemory},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, facts.canUseHostPointerForRegisteredMem},
      {cudaDevAttrHostRegisterSupported, facts.hostRegisterSupported},
      {cudaDevAttrUnifiedAddressing, facts.unifiedAddressing},
      {cudaDevAttrManagedMemory, facts.managedMemory},
      {cudaDevAttrConcurrentManagedAccess, facts.concurrentManagedAccess},
      {cudaDevAttrConcurrentKernels, facts.concurrentKernels},
      {cudaDevAttrStreamPrioritiesSupported, facts.streamPrioritiesSupported},
      {cudaDevAttrAsyncEngineCount, facts.asyncEngineCount},
      {cudaDevAttrMemoryPoolsSupported, facts.memoryPoolsSupported},
      {cudaDevAttrIpcEventSupport, facts.ipcEventSupported},
      {cudaDevAttrComputeCapabilityMajor, facts.major},
      {cudaDevAttrComputeCapabilityMinor, facts.minor},
      {cudaDevAttrPciDomainId, facts.pciDomainID},
      {cudaDevAttrPciBusId, facts.pciBusID},
      {cudaDevAttrPciDeviceId, facts.pciDeviceID},
      {cudaDevAttrNumaId, -1},
      {cudaDevAttrHostNumaId, -1},
  };
  const auto* const found = std::ranges::find(known, which, &std::pair<cudaDeviceAttr, int>::first);
  return found == std::end(known) ? 0 : found->second;
}

}  // namespace gantry::cudart_api
