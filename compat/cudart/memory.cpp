// Memory of devices and page-locked memory of the host.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/next.hpp"
#include "compat/cudart/peers.hpp"
#include "compat/cudart/pools.hpp"

namespace gantry::cudart_api {

namespace {

constexpr std::size_t kPitch = 512;

// Stores what the driver allocated.
void store(void** place, void* data) {
  expect(data != nullptr, cudaErrorMemoryAllocation, "out of memory");
  *place = data;
}

void allocate(void** place, std::size_t bytes) {
  expect_place(place);
  *place = nullptr;
  if (bytes > 0) store(place, driver().allocate(driver().current_device(), bytes));
}

// The host reaches memory of simulated devices, too.
void allocate_managed(void** place, std::size_t bytes, unsigned flags) {
  expect(flags == cudaMemAttachGlobal || flags == cudaMemAttachHost, cudaErrorInvalidValue,
         "expected cudaMemAttachGlobal or cudaMemAttachHost");
  expect(bytes > 0, cudaErrorInvalidValue, "expected at least one byte");
  allocate(place, bytes);
}

void allocate_rows(void** place, std::size_t* pitch, std::size_t width, std::size_t height) {
  expect_place(pitch);
  expect(width <= SIZE_MAX - kPitch, cudaErrorInvalidValue, "the rows are too wide");
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  expect(height == 0 || *pitch <= SIZE_MAX / height, cudaErrorMemoryAllocation, "out of memory");
  allocate(place, *pitch * height);
}

void deallocate(void* data) {
  if (data == nullptr) return;
  const PointerInfo info = driver().pointer_info(data);
  expect(info.kind == PointerKind::device, cudaErrorInvalidValue, "this is no memory of a device");
  if (!deallocate_pooled(info.device, data)) driver().deallocate(info.device, data);
}

void allocate_host(void** place, std::size_t bytes) {
  expect_place(place);
  *place = nullptr;
  if (bytes > 0) store(place, driver().allocate_pinned(bytes));
}

void allocate_host_with_flags(void** place, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  expect((flags & ~kKnown) == 0, cudaErrorInvalidValue, "expected flags of cudaHostAlloc");
  allocate_host(place, bytes);
}

void deallocate_host(void* data) { driver().deallocate_pinned(data); }

// The pages that hold [data, data + bytes).
struct Pages {
  Pages(void* data, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    begin = static_cast<std::byte*>(data) - address % page;
    size = (address % page + bytes + page - 1) / page * page;
  }
  void* begin;
  std::size_t size;
};

void register_host(void* data, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                              cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  expect(data != nullptr && bytes > 0 && (flags & ~kKnown) == 0, cudaErrorInvalidValue,
         "expected memory of the host and flags of cudaHostRegister");
  const Pages pages(data, bytes);
  expect(driver().register_host(pages.begin, pages.size), cudaErrorMemoryAllocation,
         "the system permits no more page-locked memory");
}

void unregister_host(void* data) {
  expect(data != nullptr, cudaErrorInvalidValue, "expected memory of the host, but got null");
  driver().unregister_host(Pages(data, 1).begin);
}

void expect_pinned(const void* data) {
  expect(driver().pointer_info(data).kind == PointerKind::pinned, cudaErrorInvalidValue,
         "this is no page-locked memory");
}

void device_pointer(void** place, void* data, unsigned flags) {
  expect_place(place);
  expect(flags == 0, cudaErrorInvalidValue, "expected flags 0");
  expect_pinned(data);
  *place = data;
}

void host_flags(unsigned* place, void* data) {
  expect_place(place);
  expect_pinned(data);
  *place = cudaHostAllocPortable | cudaHostAllocMapped;
}

void memory_info(std::size_t* free, std::size_t* total) {
  expect_place(free);
  expect_place(total);
  const NativeMemoryInfo info = driver().memory_info(driver().current_device());
  *free = info.free;
  *total = info.total;
}

// True if work of the current device may use the memory at `data` of device `owner`.
bool is_reached(const void* data, int owner) {
  const int device = driver().current_device();
  return is_pooled(data) ? reaches_pool(device, owner) : reaches(device, owner);
}

void attributes(cudaPointerAttributes* place, const void* data) {
  expect_place(place);
  const PointerInfo info = driver().pointer_info(data);
  *place = {};
  auto* const address = const_cast<void*>(data);
  switch (info.kind) {
    case PointerKind::unregistered:
      place->type = cudaMemoryTypeUnregistered;
      place->device = cudaInvalidDeviceId;
      place->hostPointer = address;
      break;
    case PointerKind::pinned:
      place->type = cudaMemoryTypeHost;
      place->devicePointer = place->hostPointer = address;
      break;
    case PointerKind::device:
      place->type = cudaMemoryTypeDevice;
      place->device = info.device;
      if (is_reached(data, info.device)) place->devicePointer = address;
      break;
  }
}

void export_memory(cudaIpcMemHandle_t* place, void* data) {
  expect_place(place);
  const NativeMemoryHandle handle = driver().export_memory(data);
  static_assert(sizeof(handle.bytes) == sizeof(*place));
  std::memcpy(place, handle.bytes.data(), sizeof(*place));
}

void open_memory(void** place, cudaIpcMemHandle_t exported, unsigned flags) {
  expect_place(place);
  expect(flags == cudaIpcMemLazyEnablePeerAccess, cudaErrorInvalidValue,
         "expected cudaIpcMemLazyEnablePeerAccess");
  NativeMemoryHandle handle;
  std::memcpy(handle.bytes.data(), &exported, sizeof(exported));
  *place = driver().open_memory(driver().current_device(), handle);
}

void close_memory(void* data) { driver().close_memory(data); }

}  // namespace

GANTRY_CUDART_CALL(cudaMalloc, (void** place, std::size_t bytes), (place, bytes), allocate)
GANTRY_CUDART_CALL(cudaMallocManaged, (void** place, std::size_t bytes, unsigned flags),
                   (place, bytes, flags), allocate_managed)
GANTRY_CUDART_CALL(cudaMallocPitch,
                   (void** place, std::size_t* pitch, std::size_t width, std::size_t height),
                   (place, pitch, width, height), allocate_rows)
GANTRY_CUDART_CALL(cudaFree, (void* data), (data), deallocate)
GANTRY_CUDART_CALL(cudaMallocHost, (void** place, std::size_t bytes), (place, bytes), allocate_host)
GANTRY_CUDART_CALL(cudaHostAlloc, (void** place, std::size_t bytes, unsigned flags),
                   (place, bytes, flags), allocate_host_with_flags)
GANTRY_CUDART_CALL(cudaFreeHost, (void* data), (data), deallocate_host)
GANTRY_CUDART_CALL(cudaHostRegister, (void* data, std::size_t bytes, unsigned flags),
                   (data, bytes, flags), register_host)
GANTRY_CUDART_CALL(cudaHostUnregister, (void* data), (data), unregister_host)
GANTRY_CUDART_CALL(cudaHostGetDevicePointer, (void** place, void* data, unsigned flags),
                   (place, data, flags), device_pointer)
GANTRY_CUDART_CALL(cudaHostGetFlags, (unsigned* place, void* data), (place, data), host_flags)
GANTRY_CUDART_CALL(cudaMemGetInfo, (std::size_t * free, std::size_t* total), (free, total),
                   memory_info)
GANTRY_CUDART_CALL(cudaPointerGetAttributes, (cudaPointerAttributes * place, const void* data),
                   (place, data), attributes)
GANTRY_CUDART_CALL(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * place, void* data), (place, data),
                   export_memory)
GANTRY_CUDART_CALL(cudaIpcOpenMemHandle,
                   (void** place, cudaIpcMemHandle_t exported, unsigned flags),
                   (place, exported, flags), open_memory)
GANTRY_CUDART_CALL(cudaIpcCloseMemHandle, (void* data), (data), close_memory)

}  // namespace gantry::cudart_api
