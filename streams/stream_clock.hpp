// The order of work across streams, known without asking the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

class StreamClock;

namespace detail {

/// A point in a stream's work: its sequence number, and the vector clock of the stream there.
///
/// A reused timestamp allocates nothing: `entries` keeps its capacity.
struct Timestamp {
  StreamClock* clock = nullptr;  ///< nullptr: orders nothing
  std::uint64_t sequence = 0;
  std::vector<std::uint64_t> entries;  ///< by slot; shorter than the number of slots
};

/// An empty timestamp from the calling thread's cache.
[[nodiscard]] std::unique_ptr<Timestamp, TimestampRecycler> acquire_timestamp();

}  // namespace detail

using detail::acquire_timestamp;
using detail::Timestamp;

/// How the host may wait for a stream. In a capture it may wait only for an event from before it.
enum class HostWait : std::uint8_t { anyhow, behind_event };

/// The vector clock of one stream: for every other stream, the last sequence number waited for.
///
/// Grows by pages of the slots that were raised. Thread safety: any thread; no locks.
class VectorClock {
 public:
  static constexpr std::uint32_t kPageSlots = 64;
  static constexpr std::uint32_t kPages = 256;
  /// Streams from this slot on have no entry: only their completion is known.
  static constexpr std::uint32_t kSlots = kPageSlots * kPages;

  VectorClock() = default;
  ~VectorClock();
  VectorClock(const VectorClock&) = delete;
  VectorClock& operator=(const VectorClock&) = delete;

  [[nodiscard]] std::uint64_t get(std::uint32_t slot) const {
    if (slot >= end_.load(std::memory_order_acquire)) return 0;
    const Page* page = pages_[slot / kPageSlots].load(std::memory_order_acquire);
    return page == nullptr ? 0 : (*page)[slot % kPageSlots].load(std::memory_order_acquire);
  }
  /// Raises the entry to `sequence` if it is lower.
  void raise(std::uint32_t slot, std::uint64_t sequence);
  void copy_to(std::vector<std::uint64_t>& out) const;

 private:
  using Page = std::array<std::atomic<std::uint64_t>, kPageSlots>;

  std::atomic<std::uint32_t> end_{0};  // past the highest slot that was ever raised
  std::array<std::atomic<Page*>, kPages> pages_{};
};

/// The order of one stream's work against all other streams.
///
/// Note [Stream clocks]
/// Event records of a stream have *sequence numbers*. A caller that wants to know later when the
/// work submitted so far is complete keeps next_sequence(): the number of the first record that is
/// not begun yet. Three facts make that right without a lock around driver calls:
///   * A record takes its number before the driver's record call. A thread that read
///     next_sequence() == n after submitting work read it before record n was begun. So the driver
///     saw the submission before record n and before every later record, for any order of
///     concurrent records. "Record n is reached" therefore means that all work with a number <= n
///     is complete. (If the driver recorded first, a thread could submit work after the record and
///     still read the record's own number.)
///   * A record copies its stream's vector clock before the driver's call, and a wait raises the
///     vector clock after the driver's call. So every entry of a timestamp was waited for in front
///     of its record.
///   * Entries only rise, and each is true by itself. So vector clocks can be read and written
///     entry by entry. A wait raises the entry of the recorded stream last: a thread that reads it
///     also reads the entries that it implies.
/// A record in a capture has no position in time: it has no number, and a wait for it orders
/// nothing.
///
/// Thread safety: every member may be called from any thread. Clocks live as long as the process.
class StreamClock {
 public:
  /// The clock of `stream`, by device and Stream::id(). Lock-free once it exists.
  [[nodiscard]] static StreamClock& of(const Stream& stream);
  /// The clock of that id if there is one, else nullptr.
  [[nodiscard]] static StreamClock* find(int device, std::uint64_t id);

  [[nodiscard]] int device() const { return native_.device; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] const NativeStream& native() const { return native_; }
  /// Dense number over all streams of the process.
  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  /// True for a stream that gantry does not own and that may therefore be destroyed at any time.
  [[nodiscard]] bool is_external() const { return is_external_; }

  /// The first sequence number that covers all work submitted so far. Costs one load.
  [[nodiscard]] std::uint64_t next_sequence() const {
    return last_sequence_.load(std::memory_order_relaxed) + 1;
  }
  /// As next_sequence(), also fit for a stream that may be destroyed before it is asked again: on
  /// an external stream an event is recorded now.
  [[nodiscard]] std::uint64_t record_sequence() noexcept {
    return is_external_ ? record_external_sequence() : next_sequence();
  }
  /// True if work submitted here from now on runs after `sequence` of `other`: it is the same
  /// stream, this one waited for it, or it is reached. Not for work that is captured into a graph.
  [[nodiscard]] bool happens_after(const StreamClock& other, std::uint64_t sequence) const {
    if (sequence <= other.completed()) return true;
    if (is_invalidated()) return false;
    return &other == this || sequence <= vector_clock_.get(other.slot_);
  }
  /// The last sequence number that is known to be reached, and with it all before.
  [[nodiscard]] std::uint64_t completed() const {
    return completed_.load(std::memory_order_acquire);
  }

  /// Numbers a timestamp; to be called before the driver's record call.
  void begin_timestamp(Timestamp& timestamp);
  /// As record_event of the driver, with a new number for it. `timestamp` then has no clock if the
  /// record orders nothing: in a capture, or on an invalidated stream.
  /// Throws: CudaError.
  void record(NativeEvent event, Timestamp& timestamp);
  /// Notes that this stream waits for `timestamp`; to be called after the driver's wait call.
  void join(const Timestamp& timestamp);
  /// Notes that `timestamp` is reached, and with it all of its entries.
  static void complete(const Timestamp& timestamp);
  void complete(std::uint64_t sequence);

  /// Makes sure that an event covers `sequence`, a number handed out before, unless it is reached.
  /// From then on poll() finds the moment at which it is. Does nothing on a captured stream, nor on
  /// an external one, whose numbers of record_sequence() have events. Never blocks on the device.
  void cover(std::uint64_t sequence) noexcept;
  /// Asks the driver how far the stream is; true if completed() advanced. A stream without work is
  /// found at once. Otherwise an event is recorded unless one covers `wanted`; without `wanted`,
  /// unless one is pending. Never blocks on the device, rethrows no error of the stream, and does
  /// nothing on a captured stream.
  bool poll(std::uint64_t wanted = UINT64_MAX) noexcept;
  /// False if wait_for(sequence) would throw because of a capture. With `behind_event`, also if it
  /// would record an event or wait for the device.
  [[nodiscard]] bool can_wait_for(std::uint64_t sequence,
                                  HostWait wait = HostWait::anyhow) noexcept;
  /// Blocks the host until `sequence`, a number handed out before, is reached.
  /// Throws: CudaError of a failed stream, or if the stream is being captured, or if only a
  /// synchronization of the device would tell and may_synchronize_devices() is false; IndexError of
  /// a kernel, with `sequence` completed.
  void wait_for(std::uint64_t sequence);
  /// As wait_for() where can_wait_for(); false, without a wait, where not. Another thread may begin
  /// a capture between the two. Throws: as wait_for(), but not because of a capture.
  [[nodiscard]] bool try_wait_for(std::uint64_t sequence, HostWait wait = HostWait::anyhow);
  /// Makes later work of `waiter` wait for `sequence`, a number handed out before, or for all of
  /// them. The host blocks only for an invalidated stream. False, with nothing done, if one of the
  /// streams is being captured, or if the host would block during a capture. Throws: CudaError.
  bool make_wait(StreamClock& waiter, std::uint64_t sequence = UINT64_MAX);
  /// As make_wait, for a number of record_sequence() and a waiter without a clock. Touches neither
  /// this stream, which may be destroyed, nor the device: false, with nothing done, if no event
  /// covers the number, so that only synchronize_device_clocks() completes it. Throws: CudaError.
  bool make_wait_if_covered(NativeStream waiter, std::uint64_t sequence);

  /// Notes that the handle belongs to another stream now. Nothing is ever recorded here again, and
  /// only a device-wide synchronization completes a number that no pending event covers.
  void invalidate();
  [[nodiscard]] bool is_invalidated() const { return invalidated_.load(std::memory_order_acquire); }
  /// True if the caller may put work on the stream as far as is known: its handle has not become
  /// another stream's, and it is not the per-thread default stream of another thread.
  [[nodiscard]] bool may_submit() const;

  /// False if the stream takes part in no capture as far as gantry has seen; else is_captured()
  /// tells. Costs one load. A capture is seen when it is gantry's own. Others are seen when memory
  /// is allocated on the stream, or an event of gantry is recorded or waited for.
  [[nodiscard]] bool may_be_captured() const { return captured_.load(std::memory_order_relaxed); }
  /// Asks the driver, and keeps the answer for may_be_captured(). Throws: CudaError.
  bool is_captured() const;
  /// True if the stream was seen in a capture of gantry's that has ended. For an external stream,
  /// which may be destroyed and is not looked at again.
  [[nodiscard]] bool has_left_capture() const noexcept;
  /// False if the stream has work. External streams may be destroyed, and captured ones cannot be
  /// asked: they have none if all of their numbers are reached. Throws: CudaError.
  [[nodiscard]] bool has_no_work() const;
  /// Asserts that every number that the clock knows was handed out. Any thread may call meanwhile.
  void verify();

 private:
  friend class ClockRegistry;
  class Section;
  struct PendingEvent;

  StreamClock(const Stream& stream, std::uint32_t slot);

  std::uint64_t record_external_sequence() noexcept;
  /// A pending event that covers `sequence`; recorded now if there is none and it may be.
  /// nullptr if the stream is invalidated or external, so that no event can be recorded.
  [[nodiscard]] std::shared_ptr<PendingEvent> event_covering(std::uint64_t sequence);
  /// Records an event with a new number; the lock is held. Throws: CudaError.
  std::shared_ptr<PendingEvent> record_event();
  bool retire_completed();
  /// Completes all numbers handed out so far if the stream has no work, else records an event. The
  /// lock is held; the stream is not external. Throws: CudaError, std::bad_alloc.
  void complete_or_record();
  /// True if a pending event covers `sequence`; the lock is held.
  [[nodiscard]] bool is_covered(std::uint64_t sequence) const;

  const NativeStream native_;
  const std::uint64_t id_;
  const std::uint32_t slot_;
  const bool is_external_;
  std::atomic<bool> invalidated_{false};
  alignas(64) std::atomic<std::uint64_t> last_sequence_{0};
  mutable std::atomic<bool> captured_{false};  ///< read with last_sequence_ by every free
  /// The capture in which an external stream was seen, if gantry began it.
  mutable std::atomic<std::uint64_t> seen_capture_{0};
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  VectorClock vector_clock_;
  std::mutex mutex_;  ///< guards what follows, and recording against invalidation
  std::vector<std::shared_ptr<PendingEvent>> pending_events_;  ///< oldest first
};

/// A timestamp of every stream of a device, for a caller that is about to wait for the device.
class DeviceTimestamp {
 public:
  /// To be made before Driver::synchronize_device.
  explicit DeviceTimestamp(int device);
  /// To be called after it succeeded: all work submitted before the constructor is complete.
  void complete() const;

 private:
  std::vector<Timestamp> timestamps_;
};

/// True if no stream of `device` has work, as far as gantry can see without waiting. External and
/// captured streams have none if all numbers that they handed out are reached.
/// Throws: CudaError, std::bad_alloc.
[[nodiscard]] bool is_device_idle(int device);
/// True once none of the devices has work. Looks for a few milliseconds at most: work of a stream
/// may wait for the caller's next action. False, too, if the driver fails.
[[nodiscard]] bool await_idle(std::span<const int> devices) noexcept;

/// False while a stream of any device is captured, as far as gantry can see: then the driver may
/// refuse to synchronize with a device, which spoils the capture.
[[nodiscard]] bool may_synchronize_devices() noexcept;

/// Driver::synchronize_device, after which every number that a clock of the device handed out
/// before is reached; synchronize(Device) does the same. Throws: as the driver.
void synchronize_device_clocks(int device);

}  // namespace gantry
