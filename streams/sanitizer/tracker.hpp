// The program's submissions so far: orders, accesses, captures and graphs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream.hpp>

#include "streams/sanitizer/access_history.hpp"
#include "streams/sanitizer/findings.hpp"
#include "streams/sanitizer/timeline.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::sanitizer {

/// A stream as the driver knows it at a call.
struct StreamPoint {
  NativeStream native;
  std::uint64_t identity = 0;  ///< no other stream ever has it
  std::uint64_t capture = 0;   ///< the capture that the stream takes part in; 0: none
};

/// An operation that was entered before its submission.
struct Entry {
  std::uint64_t capture = 0;
  std::uint64_t operation = 0;
  std::vector<Footprint> operands;
};

/// Thread safety: any thread. The lock is never held over a call of the driver, which may wait for
/// host functions of the program, nor while a call site is named.
class Tracker {
 public:
  static Tracker& instance();

  /// Forgets everything except the findings.
  void reset();
  /// Sets the driver that streams are looked up with, past any that counts or refuses calls.
  void set_driver(Driver& driver) { driver_.store(&driver, std::memory_order_release); }
  /// The stream at this moment; none if the driver refuses it, as it will refuse the operation.
  [[nodiscard]] std::optional<StreamPoint> locate(NativeStream stream) const noexcept;

  // Operations. They throw RaceError in mode throw_, and then have entered nothing.
  [[nodiscard]] Entry enter(std::string_view operation, const Stream& stream,
                            std::span<const Use> operands);
  void enter_on_host(std::string_view operation, std::span<const Use> operands);
  [[nodiscard]] Entry enter_replay(NativeGraph graph, const Stream& stream);
  /// Undoes enter(), for an operation that was not submitted.
  void cancel(const Entry& entry) noexcept;

  // Orders, after the driver's call.
  void record(NativeEvent event, const StreamPoint& at);
  void wait(const StreamPoint& at, NativeEvent event);
  /// Work behind `at` follows everything submitted so far: it waits for another process.
  void wait_for_unknown(const StreamPoint& at);
  void wait_on_host(NativeEvent event);
  void wait_on_host(const StreamPoint& at);
  void wait_on_host_for_device(int device);
  void order(const StreamPoint& before, const StreamPoint& after);
  /// Work behind `at` follows the last lead() of the queue, in the same capture or outside.
  void follow(const void* queue, const StreamPoint& at);
  void lead(const void* queue, const StreamPoint& at);
  void forget_queue(const void* queue) noexcept;
  /// The event may be recorded by other processes from now on.
  void share(NativeEvent event);
  void forget(NativeEvent event) noexcept;

  // Captures and graphs.
  void finish_capture(std::uint64_t capture, NativeGraph graph);
  void finish_replay(NativeGraph graph, const StreamPoint& at);
  void update_graph(NativeGraph graph, NativeGraph source);
  void forget_graph(NativeGraph graph) noexcept;

  // Memory.
  void take_memory(const void* data, std::size_t bytes);
  /// A free on `stream`, or on the host: a write there, except for what record_stream covers.
  void free_memory(const void* data, std::size_t bytes, const StreamClock* stream);
  /// Uses by `stream`, until now or until the free, keep the block from reuse.
  void record_stream(const void* data, const Stream& stream, bool until_free);
  /// Accesses of this memory are not checked from now on, until check_memory().
  void leave_unchecked(const void* data, std::size_t bytes);
  void check_memory(const void* data, std::size_t bytes) noexcept;

  [[nodiscard]] Findings& findings() { return findings_; }
  [[nodiscard]] std::uint64_t operations() const {
    return operations_.load(std::memory_order_relaxed);
  }
  void clear_findings();

 private:
  /// The program's own timeline, or the timeline of a capture.
  struct Line {
    Timeline time;
    AccessHistory history;
    bool is_capture = false;
    std::vector<AccessRecord> all{};  ///< of a capture: what the graph accesses
  };
  struct TrackedStream {
    StreamName name;
    std::optional<bool> is_blocking{};  ///< ordered with the default stream; asked when needed
  };
  struct EventRecord {
    std::uint64_t capture = 0;
    Clock clock;
    bool is_shared = false;
  };
  struct GraphRecord {
    std::vector<AccessRecord> accesses;
    Clock last_replay;
  };
  struct MemoryRange {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    bool operator==(const MemoryRange&) const = default;
  };
  struct RecordedUse {
    StreamIndex stream = 0;
    std::uint64_t last_tick = 0;
  };
  using Exempt = std::function<bool(const AccessRecord&)>;

  // All of these with the lock held.
  StreamIndex index_of(const StreamPoint& at);
  Line& line_of(std::uint64_t capture);
  StreamIndex arrive(Line& line, const StreamPoint& at);
  void join_default_stream(StreamIndex stream);
  const std::string* intern(std::string_view name);
  [[nodiscard]] bool is_unchecked(const Use& use) const noexcept;
  std::vector<Finding> find(Line& line, std::span<const AccessRecord> records,
                            const Exempt& exempt = {});
  void add(Line& line, std::span<const AccessRecord> records);
  [[nodiscard]] static bool is_ordered(const Line& line, const AccessRecord& earlier,
                                       const AccessRecord& later);

  Entry enter(Line& line, std::uint64_t capture, std::vector<AccessRecord> records,
              std::unique_lock<std::mutex> lock);
  void report(const std::vector<Finding>& found, bool may_throw);

  std::atomic<Driver*> driver_{nullptr};
  std::atomic<std::uint64_t> operations_{0};
  std::mutex mutex_;
  Line program_;
  std::map<std::uint64_t, Line> captures_;
  std::vector<TrackedStream> streams_;
  std::map<std::pair<int, std::uint64_t>, StreamIndex> indices_;
  std::unordered_map<NativeEvent, EventRecord> events_;
  std::unordered_map<NativeGraph, GraphRecord> graphs_;
  std::set<NativeGraph> unknown_graphs_;  ///< replayed, but captured before the sanitizer began
  std::map<std::pair<const void*, std::uint64_t>, Clock> queues_;  ///< by queue and capture
  std::map<const void*, std::vector<RecordedUse>> recorded_uses_;
  std::vector<MemoryRange> unchecked_;  ///< not in reset(): whoever adds one removes it
  std::set<std::string, std::less<>> names_;
  Findings findings_;
};

}  // namespace gantry::sanitizer
