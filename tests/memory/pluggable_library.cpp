// A shared object with allocator functions, as a user would build one.
#include "tests/memory/pluggable_library.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include <gantry/extend/driver.hpp>

using gantry::testing::PluggableLog;

extern "C" {

PluggableLog pluggable_log;

void pluggable_init(int device_count) { pluggable_log.devices = device_count; }
void* pluggable_alloc(ssize_t size, int device, void* stream);
void pluggable_free(void* data, ssize_t size, int device, void* stream);
void pluggable_empty();
void pluggable_record(void* data, void* stream);
void* throwing_alloc(ssize_t size, int device, void* stream);
void throwing_free(void* data, ssize_t size, int device, void* stream);
}

namespace {

std::mutex mutex;
std::map<void*, std::tuple<ssize_t, int, void*>> live;

}  // namespace

void* pluggable_alloc(ssize_t size, int device, void* stream) {
  const std::lock_guard lock(mutex);
  if (gantry::driver().current_device() != device) ++pluggable_log.wrong_device;
  if (pluggable_log.is_full) return nullptr;
  void* data = gantry::driver().allocate(device, static_cast<std::size_t>(size));
  if (data == nullptr) return nullptr;
  ++pluggable_log.allocations;
  live[data] = {size, device, stream};
  return data;
}

void pluggable_free(void* data, ssize_t size, int device, void* stream) {
  {
    const std::lock_guard lock(mutex);
    if (gantry::driver().current_device() != device) ++pluggable_log.wrong_device;
    ++std::atomic_ref(pluggable_log.frees);
    const auto found = live.find(data);
    if (found == live.end() || found->second != std::tuple(size, device, stream)) {
      ++pluggable_log.mismatches;
      return;
    }
    live.erase(found);
  }
  gantry::driver().synchronize_stream({device, stream});
  gantry::driver().deallocate(device, data);
}

void pluggable_empty() { ++pluggable_log.empties; }

void pluggable_record(void* data, void* /*stream*/) {
  ++pluggable_log.recorded;
  pluggable_log.last_recorded = data;
}

void* throwing_alloc(ssize_t /*size*/, int /*device*/, void* /*stream*/) {
  throw std::runtime_error("no allocation today");
}

void throwing_free(void* data, ssize_t /*size*/, int device, void* /*stream*/) {
  gantry::driver().deallocate(device, data);
  throw 42;
}
