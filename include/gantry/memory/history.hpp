// A record of the allocators' actions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

/// Options of record_history(), as in torch.cuda.memory._record_memory_history.
/// @since 0.1
struct HistoryOptions {
  /// Part of a call stack.
  enum class Stacks : std::uint8_t {
    none,       ///< no stack
    call_site,  ///< the first function outside gantry
    full,       ///< the functions above the allocator, at most 64
  };
  /// Events and blocks with call stacks.
  enum class Contexts : std::uint8_t {
    never,  ///< none
    state,  ///< live blocks and segments
    alloc,  ///< also the events of the trace; a free shows the stack of its allocation
    all,    ///< also frees with stacks of their own
  };

  /// False stops recording and deletes the records.
  bool enabled = true;
  /// Number of events to keep, over all devices; older ones are deleted. With 0 there is no trace,
  /// only the stacks of live blocks.
  std::size_t max_entries = 1'000'000;
  /// Part of a call stack that is kept.
  Stacks stacks = Stacks::full;
  /// Events and blocks whose call stacks are kept.
  Contexts contexts = Contexts::all;
  /// True deletes the earlier records.
  bool clear = false;
};

/// Starts or stops the recording of events of all devices' allocators, which snapshot() returns.
/// Backend async records nothing.
///
/// While it is off, an allocation costs one more load. While it is on, each event costs its record
/// and, with stacks, a walk up the stack.
/// Thread safety: any thread; other threads follow at their next event.
/// @code
/// memory::record_history();
/// (void)ones({4}, "cuda:0").exp();
/// memory::save_snapshot("memory.html");
/// @endcode
/// @since 0.1
GANTRY_API void record_history(const HistoryOptions& options = {});

/// Attaches `text` to all later events of the calling thread, until the next call.
/// @since 0.1
GANTRY_API void set_history_metadata(std::string text);
/// The text of the calling thread; empty at first.
/// @since 0.1
[[nodiscard]] GANTRY_API std::string history_metadata();

/// Adds an annotation with the current time to the trace of `device`. Viewers show it. It has no
/// effect while history is not recorded.
/// @since 0.1
GANTRY_API void annotate_history(std::map<std::string, std::string> values,
                                 Device device = Device::cuda());

/// A scope with an annotation at its start, {"name": name, "stage": "START"}, and one with "END" at
/// its end.
/// Example: `const memory::HistoryAnnotation step("step 1");`
/// @since 0.1
class GANTRY_API HistoryAnnotation {
 public:
  /// Annotates the start of scope `name` in the trace of `device`.
  explicit HistoryAnnotation(std::string name, Device device = Device::cuda());
  ~HistoryAnnotation();
  HistoryAnnotation(const HistoryAnnotation&) = delete;
  HistoryAnnotation& operator=(const HistoryAnnotation&) = delete;

 private:
  std::string name_;
  Device device_;
};

}  // namespace gantry::memory
