// Recording what the allocators do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

/// Options of record_history; torch.cuda.memory._record_memory_history in C++.
struct HistoryOptions {
  /// How much of a call stack is kept.
  enum class Stacks : std::uint8_t {
    none,       ///< no stack
    call_site,  ///< the first function outside gantry
    full,       ///< everything above the allocator, at most 64 functions
  };
  /// What call stacks are kept for.
  enum class Contexts : std::uint8_t {
    never,  ///< no stack for anything
    state,  ///< live blocks and segments
    alloc,  ///< also the events of the trace; a free shows the stack of its allocation
    all,    ///< also frees with stacks of their own
  };

  /// false: stops recording and forgets what was recorded.
  bool enabled = true;
  /// Events to keep, over all devices; older ones are dropped. 0: no trace, only the stacks of
  /// live blocks.
  std::size_t max_entries = 1'000'000;
  /// Part of a call stack that is kept.
  Stacks stacks = Stacks::full;
  /// Events and blocks whose call stacks are kept.
  Contexts contexts = Contexts::all;
  /// Forgets what was recorded before.
  bool clear = false;
};

/// Starts or stops recording what the allocators of all devices do, for snapshot(). Backend async
/// records nothing.
///
/// While off, an allocation pays for one load. While on, an event costs some tens of nanoseconds
/// and, with stacks, the walk up the stack.
/// Thread safety: any thread; other threads follow at their next event.
GANTRY_API void record_history(const HistoryOptions& options = {});

/// Text attached to all events that this thread records from now on, until it is set anew.
GANTRY_API void set_history_metadata(std::string text);
/// The text of this thread.
[[nodiscard]] GANTRY_API std::string history_metadata();

/// Notes something about the program beside the trace: shown by the viewers at its time.
/// Nothing is noted while history is not recorded.
GANTRY_API void annotate_history(std::map<std::string, std::string> values,
                                 Device device = Device::cuda());

/// Notes the begin and the end of a scope: {"name": name, "stage": "START"} and "END".
class GANTRY_API HistoryAnnotation {
 public:
  /// Notes the begin of scope `name` in the trace of `device`.
  explicit HistoryAnnotation(std::string name, Device device = Device::cuda());
  ~HistoryAnnotation();
  HistoryAnnotation(const HistoryAnnotation&) = delete;
  HistoryAnnotation& operator=(const HistoryAnnotation&) = delete;

 private:
  std::string name_;
  Device device_;
};

}  // namespace gantry::memory
