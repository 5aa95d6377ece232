#include "compat/cudart/pools.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/device_facts.hpp"
#include "compat/cudart/handles.hpp"
#include "compat/cudart/next.hpp"
#include "compat/cudart/streams.hpp"

namespace gantry::cudart_api {

namespace {

// The only pool of a device; its address is the handle. The driver keeps what is freed, whatever
// the threshold.
struct Pool {
  std::atomic<std::uint64_t> release_threshold{0};
  std::atomic<std::uint64_t> readers{0};  // a bit for each other device with access
};

// As many as there can be simulated devices.
std::array<Pool, 64>& pools() {
  static auto* const all = new std::array<Pool, 64>;
  return *all;
}

struct PooledFacts {
  std::size_t bytes;
};

// Memory of cudaMallocAsync().
Handles<PooledFacts>& pooled_memory() {
  static auto* const all = new Handles<PooledFacts>;
  return *all;
}

cudaMemPool_t pool_of(int device) {
  return reinterpret_cast<cudaMemPool_t>(
      &pools().at(static_cast<std::size_t>(checked_device(device))));
}

int device_of(cudaMemPool_t pool) {
  for (int device = 0; device < driver().device_count(); ++device) {
    if (pool_of(device) == pool) return device;
  }
  throw Refusal(cudaErrorInvalidValue, "there is no such memory pool");
}

void allocate_async(void** place, std::size_t bytes, cudaStream_t stream) {
  expect_place(place);
  *place = nullptr;
  if (bytes == 0) return;
  submit(stream, [&](NativeStream native) {
    *place = driver().allocate_async(native, bytes);
    expect(*place != nullptr, cudaErrorMemoryAllocation, "out of memory");
    pooled_memory().add(*place, {bytes});
  });
}

void allocate_from_pool(void** place, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  expect(device_of(pool) == native_stream(stream).device, cudaErrorNotSupported,
         "the pool and the stream belong to two devices");
  allocate_async(place, bytes, stream);
}

void deallocate_async(void* data, cudaStream_t stream) {
  submit(stream, [data](NativeStream native) {
    expect(pooled_memory().take(data).has_value(), cudaErrorInvalidValue,
           "this is no memory of cudaMallocAsync");
    driver().deallocate_async(data, native);
  });
}

void get_pool(cudaMemPool_t* place, int device) {
  expect_place(place);
  *place = pool_of(device);
}

void set_pool(int device, cudaMemPool_t pool) {
  expect(pool_of(device) == pool, cudaErrorNotSupported, "a simulated device has one pool");
}

void get_attribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* place) {
  expect_place(place);
  const int device = device_of(pool);
  const NativePoolMemory use = driver().pool_memory(device);
  switch (which) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      *static_cast<int*>(place) = 1;
      return;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<std::uint64_t*>(place) =
          pools().at(static_cast<std::size_t>(device)).release_threshold;
      return;
    case cudaMemPoolAttrReservedMemCurrent:
      *static_cast<std::uint64_t*>(place) = use.reserved;
      return;
    case cudaMemPoolAttrReservedMemHigh:
      *static_cast<std::uint64_t*>(place) = use.reserved_high;
      return;
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<std::uint64_t*>(place) = use.used;
      return;
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<std::uint64_t*>(place) = use.used_high;
      return;
  }
  throw Refusal(cudaErrorInvalidValue, "expected a cudaMemPoolAttr");
}

void set_attribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  expect_place(value);
  const int device = device_of(pool);
  switch (which) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      return;
    case cudaMemPoolAttrReleaseThreshold:
      pools().at(static_cast<std::size_t>(device)).release_threshold =
          *static_cast<const std::uint64_t*>(value);
      return;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      driver().reset_pool_peaks(device);
      return;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
      break;
  }
  throw Refusal(cudaErrorInvalidValue, "expected a cudaMemPoolAttr that can be set");
}

void trim(cudaMemPool_t pool, std::size_t bytes_to_keep) {
  driver().trim_pool(device_of(pool), bytes_to_keep);
}

// Devices with access to the pool's device reach its memory.
void set_access(cudaMemPool_t pool, const cudaMemAccessDesc* access, std::size_t count) {
  const int device = device_of(pool);
  for (std::size_t i = 0; i < count; ++i) {
    const int peer = access[i].location.id;
    expect(access[i].location.type == cudaMemLocationTypeDevice, cudaErrorNotSupported,
           "expected devices");
    (void)pool_of(peer);
    std::atomic<std::uint64_t>& readers = pools().at(static_cast<std::size_t>(device)).readers;
    const std::uint64_t bit = std::uint64_t{1} << peer;
    if (access[i].flags == cudaMemAccessFlagsProtNone) {
      readers &= ~bit;
    } else {
      driver().enable_peer_access(peer, device);
      readers |= bit;
    }
  }
}

}  // namespace

bool deallocate_pooled(int device, void* data) {
  if (!pooled_memory().take(data)) return false;
  driver().synchronize_device(device);
  driver().deallocate_async(data, {device, nullptr});
  return true;
}

bool is_pooled(const void* data) {
  const auto below = pooled_memory().find_below(data);
  if (!below) return false;
  const auto* const begin = static_cast<const std::byte*>(below->first);
  return static_cast<const std::byte*>(data) - begin <
         static_cast<std::ptrdiff_t>(below->second.bytes);
}

bool reaches_pool(int device, int peer) {
  const std::uint64_t readers = pools().at(static_cast<std::size_t>(peer)).readers;
  return device == peer || (readers >> device & 1) != 0;
}

GANTRY_CUDART_STREAM_CALL(cudaMallocAsync, (void** place, std::size_t bytes, cudaStream_t stream),
                          (place, bytes, stream), allocate_async)
GANTRY_CUDART_STREAM_CALL(cudaMallocFromPoolAsync,
                          (void** place, std::size_t bytes, cudaMemPool_t pool,
                           cudaStream_t stream),
                          (place, bytes, pool, stream), allocate_from_pool)
GANTRY_CUDART_STREAM_CALL(cudaFreeAsync, (void* data, cudaStream_t stream), (data, stream),
                          deallocate_async)
GANTRY_CUDART_CALL(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * place, int device),
                   (place, device), get_pool)
GANTRY_CUDART_CALL(cudaDeviceGetMemPool, (cudaMemPool_t * place, int device), (place, device),
                   get_pool)
GANTRY_CUDART_CALL(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), (device, pool), set_pool)
GANTRY_CUDART_CALL(cudaMemPoolGetAttribute,
                   (cudaMemPool_t pool, cudaMemPoolAttr which, void* place), (pool, which, place),
                   get_attribute)
GANTRY_CUDART_CALL(cudaMemPoolSetAttribute,
                   (cudaMemPool_t pool, cudaMemPoolAttr which, void* value), (pool, which, value),
                   set_attribute)
GANTRY_CUDART_CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, std::size_t bytes_to_keep),
                   (pool, bytes_to_keep), trim)
GANTRY_CUDART_CALL(cudaMemPoolSetAccess,
                   (cudaMemPool_t pool, const cudaMemAccessDesc* access, std::size_t count),
                   (pool, access, count), set_access)

}  // namespace gantry::cudart_api
