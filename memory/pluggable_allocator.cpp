#include <gantry/memory/pluggable_allocator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>

#include "core/exception_text.hpp"
#include "core/files/named_library.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/policy/active_pool.hpp"
#include "memory/policy/size_policy.hpp"
#include "streams/capture.hpp"
#include "streams/event_pool.hpp"

namespace gantry::memory {
namespace {

using InitHook = void (*)(int device_count);
using EmptyCacheHook = void (*)();
using RecordStreamHook = void (*)(void* data, void* stream);

// Turns whatever `function` throws into Error; `what` is the function's part.
template <class Function>
auto call(const std::string& path, const char* what, Function&& function) {
  const NoActivePool scope;
  try {
    return function();
  } catch (...) {
    throw Error(
        fmt::format("the {} function of {} failed: {}", what, path, current_exception_text()));
  }
}

// Orders what comes on `stream` behind the work of `user`. A stream that has failed does no work.
// If one of them is captured, the other one could only wait by taking part in the capture.
void wait_for_user(NativeStream stream, NativeStream user) noexcept {
  try {
    const std::uint64_t capture = is_captured(user) ? driver().capture_id(user) : 0;
    if (capture != (is_captured(stream) ? driver().capture_id(stream) : 0)) {
      const BlockingIsNeeded needed;
      if (capture == 0) driver().synchronize_stream(user);
      return;
    }
    const PooledEvent event(user.device);
    driver().record_event(event.get(), user);
    driver().wait_event(stream, event.get());
    return;
  } catch (...) {
  }
  try {
    const BlockingIsNeeded needed;
    if (!is_captured(user)) driver().synchronize_stream(user);
  } catch (...) {
    logging::warn("freeing memory of a pluggable allocator: " + current_exception_text());
  }
}

}  // namespace

class PluggableAllocator::Library final : public Allocator,
                                          public std::enable_shared_from_this<Library> {
 public:
  Library(const std::filesystem::path& path, const std::string& alloc_symbol,
          const std::string& free_symbol, const PluggableHooks& hooks)
      : path_(path.string()), library_(path) {
    if (const std::string& problem = library_.problem(); !problem.empty()) {
      throw InvalidArgument(fmt::format(
          "load_allocator: expected a shared object that can be loaded, but got '{}': {}", path_,
          problem));
    }
    alloc_ = find<PluggableAlloc>(alloc_symbol);
    free_ = find<PluggableFree>(free_symbol);
    if (!hooks.empty_cache.empty()) empty_cache_ = find<EmptyCacheHook>(hooks.empty_cache);
    if (!hooks.record_stream.empty()) record_stream_ = find<RecordStreamHook>(hooks.record_stream);
    if (!hooks.init.empty()) {
      const auto init = find<InitHook>(hooks.init);
      call(path_, "init", [init] { init(device_count()); });
    }
  }

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment) override {
    check_alignment(alignment);
    // The library may ask the driver nothing; driver() throws.
    if (in_bad_fork()) static_cast<void>(driver());
    const NativeStream native = stream.native();
    Block block{.bytes = bytes, .device = Device::cuda(native.device)};
    if (bytes == 0) return block;
    // The functions know no alignment.
    const bool pads = alignment > kDefaultAlignment;
    const std::size_t padded = pads ? add_saturated(bytes, alignment - 1) : bytes;
    if (padded > static_cast<std::size_t>(PTRDIFF_MAX)) throw_oom(bytes, native.device);
    auto live = std::make_unique<LiveBlock>();
    live->library = shared_from_this();
    live->bytes = padded;
    live->stream = native;
    {
      const DeviceGuard guard(block.device);
      live->data = call(path_, "alloc", [&] {
        return alloc_(static_cast<std::ptrdiff_t>(padded), native.device, native.handle);
      });
    }
    if (live->data == nullptr) throw_oom(padded, native.device);
    live_blocks_.fetch_add(1);
    live_bytes_.fetch_add(padded);
    block.data = pads ? align_up(live->data, alignment) : live->data;
    block.allocator = this;
    block.handle = live.release();
    return block;
  }
  void deallocate(Block& block) noexcept override {
    if (block.handle != nullptr && !in_bad_fork()) {
      // This may be the last owner of the library: it ends behind everything else here.
      const std::unique_ptr<LiveBlock> live(static_cast<LiveBlock*>(block.handle));
      for (const NativeStream& user : live->users) wait_for_user(live->stream, user);
      const NoActivePool scope;
      try {
        const DeviceGuard guard(Device::cuda(live->stream.device));
        free_(live->data, static_cast<std::ptrdiff_t>(live->bytes), live->stream.device,
              live->stream.handle);
      } catch (...) {
        logging::warn("the function of a pluggable allocator that frees memory failed: " +
                      current_exception_text());
      }
      live_blocks_.fetch_sub(1);
      live_bytes_.fetch_sub(live->bytes);
    }
    block = {};
  }
  void record_stream(const Block& block, const Stream& stream) override {
    if (block.handle == nullptr) return;
    auto& live = *static_cast<LiveBlock*>(block.handle);
    const NativeStream native = stream.native();
    if (native == live.stream) return;
    if (record_stream_ != nullptr) {
      const DeviceGuard guard(block.device);
      call(path_, "record_stream", [&] { record_stream_(live.data, native.handle); });
      return;
    }
    const std::lock_guard lock(live.mutex);
    if (std::find(live.users.begin(), live.users.end(), native) == live.users.end()) {
      live.users.push_back(native);
    }
  }
  void empty_cache(Device device) override {
    const int index = checked_device_index(device, "empty_cache");
    if (empty_cache_ == nullptr) return;
    const DeviceGuard guard(Device::cuda(index));
    call(path_, "empty_cache", [this] { empty_cache_(); });
  }
  [[nodiscard]] std::string name() const override { return "pluggable"; }

  [[nodiscard]] std::size_t live_blocks() const { return live_blocks_.load(); }
  [[nodiscard]] std::size_t live_bytes() const { return live_bytes_.load(); }

 private:
  // What a free needs; it keeps the library's code loaded.
  struct LiveBlock {
    std::shared_ptr<Library> library;
    void* data = nullptr;
    std::size_t bytes = 0;
    NativeStream stream;
    std::mutex mutex;  ///< guards users
    std::vector<NativeStream> users;
  };

  template <class Function>
  [[nodiscard]] Function find(const std::string& symbol) const {
    std::string problem;
    if (const auto found = library_.find<Function>(symbol, problem)) return found;
    throw InvalidArgument(fmt::format("load_allocator: expected a function '{}' in {}, but {}",
                                      symbol, path_, problem));
  }
  [[noreturn]] void throw_oom(std::size_t bytes, int device) const {
    OomReport report = report_of_driver(device, bytes);
    report.allocated = report.reserved = signed_bytes(live_bytes());
    throw_out_of_memory(device, report, false);
  }

  const std::string path_;
  const NamedLibrary library_;
  PluggableAlloc alloc_ = nullptr;
  PluggableFree free_ = nullptr;
  EmptyCacheHook empty_cache_ = nullptr;
  RecordStreamHook record_stream_ = nullptr;
  std::atomic<std::size_t> live_blocks_{0};
  std::atomic<std::size_t> live_bytes_{0};
};

PluggableAllocator::PluggableAllocator(std::shared_ptr<Library> library)
    : library_(std::move(library)) {}

Block PluggableAllocator::allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) {
  return library_.of("PluggableAllocator::allocate").allocate(stream, bytes, alignment);
}

void PluggableAllocator::deallocate(Block& block) noexcept {
  if (block.allocator != nullptr) block.allocator->deallocate(block);
  block = {};
}

void PluggableAllocator::record_stream(const Block& block, const Stream& stream) {
  library_.of("PluggableAllocator::record_stream").record_stream(block, stream);
}

void PluggableAllocator::empty_cache(Device device) {
  library_.of("PluggableAllocator::empty_cache").empty_cache(device);
}

std::string PluggableAllocator::name() const {
  return library_.of("PluggableAllocator::name").name();
}

std::size_t PluggableAllocator::live_blocks() const {
  return library_.of("PluggableAllocator::live_blocks").live_blocks();
}

std::size_t PluggableAllocator::live_bytes() const {
  return library_.of("PluggableAllocator::live_bytes").live_bytes();
}

PluggableAllocator load_allocator(const std::filesystem::path& shared_object,
                                  const std::string& alloc_symbol, const std::string& free_symbol,
                                  const PluggableHooks& hooks) {
  return PluggableAllocator(std::make_shared<PluggableAllocator::Library>(
      shared_object, alloc_symbol, free_symbol, hooks));
}

}  // namespace gantry::memory
