#include "memory/driver_memory.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

#include <gantry/core/log.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "core/text/byte_count.hpp"
#include "device/drivers/memory_reclaim.hpp"
#include "device/platform/platform.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/oom/direct_memory.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/policy/config.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {
namespace {

DeviceHeap* heap_of(int device) { return heap_allocator().find_heap(device); }

// Limit of the wait for streams that use free memory.
constexpr auto kStreamTimeout = std::chrono::seconds(5);
constexpr auto kLook = std::chrono::milliseconds(1);

// True if more memory becomes free when streams have completed their work.
bool release_unused(int device) {
  (void)MemoryPressureCallbacks::instance().run(device, Waiting::forbidden);
  DeviceHeap* heap = heap_of(device);
  const bool is_more = heap != nullptr && heap->release_unused();
  if (!alloc_config().backend->is_of_driver) return is_more;
  return async_allocator().release_for_driver(device) == DriverRelease::none_yet || is_more;
}

// Releases what can be released at once. True in `is_more` if more can be after work of streams.
bool release_completed_for_driver(int device, bool& is_more) noexcept {
  bool any = false;
  is_more = false;
  for (int i = 0; i < table_size(); ++i) {
    if (device >= 0 && i != device) continue;
    const DriverRelease released = standard_allocator().release_for_driver(i);
    any = any || released == DriverRelease::some;
    is_more = is_more || released == DriverRelease::none_yet;
  }
  return any;
}

// A MemoryReclaimer.
bool release_for_driver(int device) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kStreamTimeout;
  for (;;) {
    bool is_more = false;
    if (release_completed_for_driver(device, is_more)) return true;
    if (!is_more || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
}

// Empties the allocator of the program, if it has set one.
void empty_other_cache(int device) {
  const Device on = Device::cuda(device);
  if (&allocator(on) != &standard_allocator()) allocator(on).empty_cache(on);
}

// What `ask` returns, which is `none` while the driver has no memory.
template <class Result, class Ask>
Result recovering(int device, std::size_t bytes, std::string_view purpose, Result none, Ask ask) {
  if (const Result result = ask(); result != none) return result;
  empty_other_cache(device);
  const auto deadline = std::chrono::steady_clock::now() + kStreamTimeout;
  for (;;) {
    const bool is_more = release_unused(device);
    if (const Result result = ask(); result != none) return result;
    if (!is_more || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kLook);
  }
  throw_out_of_memory(device, bytes, purpose);
}

}  // namespace

void throw_out_of_memory(int device, std::size_t bytes, std::string_view purpose) {
  if (DeviceHeap* heap = heap_of(device)) heap->report_out_of_memory(bytes, purpose);
  OomReport breakdown = report_of_driver(device, bytes);
  breakdown.allocated = signed_bytes(allocated(Device::cuda(device)));
  breakdown.reserved = signed_bytes(reserved(Device::cuda(device)));
  throw_out_of_memory(device, breakdown, /*may_split_less=*/false, purpose);
}

void* allocate_from_driver(int device, std::size_t bytes, std::string_view purpose) {
  void* const data = recovering<void*>(device, bytes, purpose, nullptr,
                                       [&] { return driver().allocate(device, bytes); });
  note_direct_memory(device, data, bytes, purpose);
  return data;
}

void deallocate_to_driver(int device, void* data) {
  forget_direct_memory(data);  // another thread may get the address at once
  driver().deallocate(device, data);
}

NativeChunk create_chunk_from_driver(int device, std::size_t bytes, std::string_view purpose) {
  return recovering(device, bytes, purpose, NativeChunk::none,
                    [&] { return driver().create_chunk(device, bytes); });
}

void* allocate_pinned_from_driver(std::size_t bytes, std::string_view purpose) {
  if (void* data = driver().allocate_pinned(bytes)) return data;
  pinned_allocator().empty_cache(Device::cpu());
  if (void* data = driver().allocate_pinned(bytes)) return data;
  throw OutOfMemoryError(
      fmt::format("Page-locked host memory is exhausted. Tried to allocate {} for {}.",
                  format_bytes(signed_bytes(bytes)), purpose),
      OomReport{.requested = signed_bytes(bytes)}, "cpu");
}

bool register_host_with_driver(void* data, std::size_t bytes) {
  if (driver().register_host(data, bytes)) return true;
  pinned_allocator().empty_cache(Device::cpu());
  return driver().register_host(data, bytes);
}

void offer_cached_memory() noexcept {
  set_memory_reclaimer(release_for_driver);
  call_before_captures([]() noexcept { standard_allocator().prepare_for_capture(); });
}

void make_room(int device, std::size_t bytes) noexcept {
  try {
    if (driver().memory_info(device).free < bytes) (void)release_unused(device);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("releasing cached memory: {}", error.what()));
  }
}

void DriverMemory::Deallocate::operator()(void* data) const noexcept {
  try {
    deallocate_to_driver(device, data);
  } catch (const std::exception& error) {
    logging::warn(fmt::format("releasing device memory: {}", error.what()));
  }
}

}  // namespace gantry::memory
