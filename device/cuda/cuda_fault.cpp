#include "device/cuda/cuda_fault.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>

#include <gantry/core/error.hpp>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/drivers/fault_record.hpp"
#include "device/drivers/fault_source.hpp"

namespace gantry {

namespace cuda {

namespace {

constexpr int kMaxDevices = 64;

// Page-locked records that kernels write, made when the first kernel of a device asks for one.
std::array<std::atomic<FaultRecord*>, kMaxDevices> records{};
std::atomic<std::size_t> end_of_records{0};  // past the last device with a record
std::mutex making;

bool is_raised(FaultRecord& record) {
  return std::atomic_ref(record.raised).load(std::memory_order_acquire) == FaultRecord::kRaised;
}

}  // namespace

void raise_fault(int device) {
  FaultRecord* record = records[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  const std::optional<FaultRecord> fault = record == nullptr ? std::nullopt : take_fault(*record);
  if (fault) [[unlikely]] {
    throw IndexError(fault_text(*fault, device), Device::cuda(device).str());
  }
  raise_source_faults(device);
}

bool any_fault() noexcept {
  const std::size_t end = end_of_records.load(std::memory_order_acquire);
  for (std::size_t device = 0; device < end; ++device) {
    FaultRecord* record = records[device].load(std::memory_order_acquire);
    if (record != nullptr && is_raised(*record)) return true;
  }
  return any_source_fault();
}

}  // namespace cuda

FaultRecord* CudaDriver::fault_record(int device) {
  std::atomic<FaultRecord*>& slot = cuda::records.at(static_cast<std::size_t>(device));
  if (FaultRecord* known = slot.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(cuda::making);
  if (FaultRecord* known = slot.load(std::memory_order_relaxed)) return known;
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  void* memory = nullptr;
  GANTRY_CUDA_CHECK(
      cudaHostAlloc(&memory, sizeof(FaultRecord), cudaHostAllocMapped | cudaHostAllocPortable),
      "making the fault record", device);
  auto* made = new (memory) FaultRecord;
  slot.store(made, std::memory_order_release);
  const std::size_t end = static_cast<std::size_t>(device) + 1;
  if (end > cuda::end_of_records.load(std::memory_order_relaxed)) {
    cuda::end_of_records.store(end, std::memory_order_release);
  }
  return made;
}

}  // namespace gantry
