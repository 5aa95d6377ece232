#include "memory/ipc_imports.hpp"

#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace gantry::memory {
namespace {

struct Imports {
  using Key = std::pair<int, std::array<std::byte, 64>>;

  std::mutex mutex;
  std::map<Key, std::weak_ptr<ImportedSegment>> segments;
};

Imports& imports() {
  static auto& instance = *new Imports();
  return instance;
}

}  // namespace

ImportedSegment::ImportedSegment(int device, const NativeMemoryHandle& name)
    : device_(device), base_(driver().open_memory(device, name)) {}

ImportedSegment::~ImportedSegment() {
  if (in_bad_fork()) return;
  try {
    driver().synchronize_device(device_);
  } catch (...) {
    // The work has ended, though not well; whoever synchronizes next hears about it.
  }
  for (const auto& [handle, event] : events_) driver().destroy_event(event);
  try {
    driver().close_memory(base_);
  } catch (...) {
    // The platform is shutting down; it takes the mapping with it.
  }
}

void ImportedSegment::wait_for(const NativeEventHandle& event, NativeStream stream) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event.bytes);
  const NativeEvent opened =
      found != events_.end()
          ? found->second
          : events_.emplace(event.bytes, driver().open_event(device_, event)).first->second;
  driver().wait_event(stream, opened);
}

std::shared_ptr<ImportedSegment> import_segment(int device, const NativeMemoryHandle& name) {
  const std::lock_guard lock(imports().mutex);
  auto& segments = imports().segments;
  const Imports::Key key{device, name.bytes};
  if (const auto found = segments.find(key); found != segments.end()) {
    if (auto segment = found->second.lock()) return segment;
  }
  std::erase_if(segments, [](const auto& entry) { return entry.second.expired(); });
  auto segment = std::make_shared<ImportedSegment>(device, name);
  segments.insert_or_assign(key, segment);
  return segment;
}

}  // namespace gantry::memory
