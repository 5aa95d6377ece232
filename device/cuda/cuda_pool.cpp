#include "device/cuda/cuda_pool.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {

namespace {

constexpr int kMaxDevices = 64;

/// Note [Own pools]
/// All code of the process shares the device's default pool: other libraries trim it and set its
/// threshold. So gantry has its own pools. They keep freed memory until they are trimmed. CUDA
/// destroys them when the process ends. A pool has its own peer access: cudaDeviceEnablePeerAccess
/// does not apply to it.
struct Pools {
  std::array<std::atomic<cudaMemPool_t>, kMaxDevices> pools{};
  std::atomic<bool> any{false};
  std::mutex mutex;                                  ///< guards what follows, and the making
  std::array<std::uint64_t, kMaxDevices> readers{};  ///< one bit per peer
};

Pools& pools() {
  static Pools& instance = *new Pools;
  return instance;
}

std::size_t slot_of(int device) { return static_cast<std::size_t>(device); }

cudaMemPool_t existing_pool(int device) {
  return pools().pools.at(slot_of(device)).load(std::memory_order_acquire);
}

void set_access(cudaMemPool_t pool, int owner, int peer) {
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = peer;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  GANTRY_CUDA_CHECK(cudaMemPoolSetAccess(pool, &access, 1),
                    fmt::format("opening the memory pool to cuda:{}", peer), owner);
}

cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  GANTRY_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties), "creating a memory pool", device);
  try {
    std::uint64_t threshold = UINT64_MAX;
    GANTRY_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                      "setting the release threshold of a memory pool", device);
    const std::uint64_t readers = pools().readers.at(slot_of(device));
    for (int peer = 0; peer < kMaxDevices; ++peer) {
      if ((readers >> static_cast<unsigned>(peer) & 1U) != 0) set_access(pool, device, peer);
    }
  } catch (...) {
    GANTRY_CUDA_WARN(cudaMemPoolDestroy(pool), "destroying a memory pool");
    throw;
  }
  return pool;
}

cudaMemPool_t pool_of(int device) {
  if (cudaMemPool_t known = existing_pool(device)) return known;
  const std::lock_guard lock(pools().mutex);
  if (cudaMemPool_t known = existing_pool(device)) return known;
  const cuda::RelaxedCaptureScope relaxed;
  cudaMemPool_t made = make_pool(device);
  pools().any.store(true, std::memory_order_relaxed);
  pools().pools.at(slot_of(device)).store(made, std::memory_order_release);
  return made;
}

std::size_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which, int device) {
  std::uint64_t value = 0;
  GANTRY_CUDA_CHECK(cudaMemPoolGetAttribute(pool, which, &value),
                    "reading an attribute of the memory pool", device);
  return static_cast<std::size_t>(value);
}

}  // namespace

// Note [Observed frees]
// A pool gives freed memory back, or to another stream, once the stream is past the free and a wait
// of the host has seen that. Queries do not count, of events or of streams, successful as they may
// be (driver 580; cudaMemPoolTrimTo says "observed on the host"). The seam promises that a query
// tells. So a wait follows each query that finds the end of work: it returns at once.

namespace cuda {

void observe_reached(CUevent event) noexcept {
  if (pools().any.load(std::memory_order_relaxed)) {
    static_cast<void>(api().cuEventSynchronize(event));  // an error is the later caller's
  }
}

namespace {

// Another thread may have put work on the stream since the look, which may wait for this thread. So
// the wait is one for an event, and only once that is reached.
void observe(CUevent event, CUstream stream) noexcept {
  constexpr auto kMoment = std::chrono::milliseconds(20);  // a busy machine runs this thread late
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (api().cuEventRecord(event, stream) != CUDA_SUCCESS) return;
  // A question about an event of a capture would spoil the capture.
  if (api().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) return;
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return;
  const auto deadline = std::chrono::steady_clock::now() + kMoment;
  CUresult reached = api().cuEventQuery(event);
  while (reached == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    reached = api().cuEventQuery(event);
  }
  if (reached == CUDA_SUCCESS) static_cast<void>(api().cuEventSynchronize(event));
}

}  // namespace

void observe_idle(NativeStream stream) noexcept {
  if (!pools().any.load(std::memory_order_relaxed)) return;
  try {
    const ContextScope scope(stream.device);  // events are made in the current context
    CUevent event = nullptr;
    if (api().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
    observe(event, static_cast<CUstream>(stream.handle));
    static_cast<void>(api().cuEventDestroy(event));
  } catch (...) {
    // The memory waits for the next look.
  }
}

void open_pool(int owner, int peer) {
  if (owner == peer) return;
  const std::lock_guard lock(pools().mutex);
  std::uint64_t& readers = pools().readers.at(slot_of(owner));
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(peer);
  if ((readers & bit) != 0) return;
  if (cudaMemPool_t pool = existing_pool(owner)) {
    const ContextScope scope(owner);
    const RelaxedCaptureScope relaxed;
    set_access(pool, owner, peer);
  }
  readers |= bit;
}

}  // namespace cuda

bool CudaDriver::supports_memory_pools(int device) {
  int supported = 0;
  GANTRY_CUDA_CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device),
                    "asking for memory pools", device);
  return supported != 0;
}

void* CudaDriver::allocate_async(NativeStream stream, std::size_t bytes) {
  const cuda::ContextScope scope(stream.device);
  const cuda::RelaxedCaptureScope relaxed;
  cudaMemPool_t pool = pool_of(stream.device);
  void* data = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&data, bytes, pool, static_cast<cudaStream_t>(stream.handle));
  if (status == cudaErrorMemoryAllocation) {
    cuda::clear_error();
    return nullptr;
  }
  GANTRY_CUDA_CHECK_STATUS(status, "cudaMallocFromPoolAsync",
                           fmt::format("allocating {} bytes", bytes), stream);
  return data;
}

void CudaDriver::deallocate_async(void* data, NativeStream stream) {
  if (data == nullptr) return;
  const cuda::ContextScope scope(stream.device);
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaFreeAsync(data, static_cast<cudaStream_t>(stream.handle)),
                         fmt::format("freeing {}", fmt::ptr(data)), stream);
}

void CudaDriver::trim_pool(int device, std::size_t bytes_to_keep) {
  cudaMemPool_t pool = existing_pool(device);
  if (pool == nullptr) return;
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaMemPoolTrimTo(pool, bytes_to_keep), "trimming the memory pool",
                         device);
}

NativePoolMemory CudaDriver::pool_memory(int device) {
  cudaMemPool_t pool = existing_pool(device);
  if (pool == nullptr) return {};
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  return {.used = attribute(pool, cudaMemPoolAttrUsedMemCurrent, device),
          .reserved = attribute(pool, cudaMemPoolAttrReservedMemCurrent, device),
          .used_high = attribute(pool, cudaMemPoolAttrUsedMemHigh, device),
          .reserved_high = attribute(pool, cudaMemPoolAttrReservedMemHigh, device)};
}

void CudaDriver::reset_pool_peaks(int device) {
  cudaMemPool_t pool = existing_pool(device);
  if (pool == nullptr) return;
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  for (const cudaMemPoolAttr which : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh}) {
    std::uint64_t zero = 0;  // the only value that may be set
    GANTRY_CUDA_CHECK(cudaMemPoolSetAttribute(pool, which, &zero),
                      "resetting the peaks of the memory pool", device);
  }
}

}  // namespace gantry
