// Which work of one stream runs after which work of another one, known without asking the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/device/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

class StreamClock;

/// One mark of a clock, and what its stream had seen of all others when it was made.
///
/// Reused marks allocate nothing: `seen` keeps its capacity.
struct ClockMark {
  StreamClock* clock = nullptr;  ///< nullptr: orders nothing
  std::uint64_t mark = 0;
  std::vector<std::uint64_t> seen;  ///< by slot; shorter than the number of slots
};

/// An empty mark from the calling thread's cache.
[[nodiscard]] std::unique_ptr<ClockMark, ClockMarkReturn> borrow_mark();

/// A row of the clock matrix: the last mark of every other stream that one stream waited for.
///
/// Grows by pages of the slots that were raised. Thread safety: any thread; no locks.
class ClockRow {
 public:
  static constexpr std::uint32_t kPageSlots = 64;
  static constexpr std::uint32_t kPages = 256;
  /// Streams from this slot on are in no row, so that only their completion is known.
  static constexpr std::uint32_t kSlots = kPageSlots * kPages;

  ClockRow() = default;
  ~ClockRow();
  ClockRow(const ClockRow&) = delete;
  ClockRow& operator=(const ClockRow&) = delete;

  [[nodiscard]] std::uint64_t get(std::uint32_t slot) const {
    if (slot >= end_.load(std::memory_order_acquire)) return 0;
    const Page* page = pages_[slot / kPageSlots].load(std::memory_order_acquire);
    return page == nullptr ? 0 : (*page)[slot % kPageSlots].load(std::memory_order_acquire);
  }
  /// Raises the entry to `mark` if it is lower.
  void raise(std::uint32_t slot, std::uint64_t mark);
  void copy_to(std::vector<std::uint64_t>& out) const;

 private:
  using Page = std::array<std::atomic<std::uint64_t>, kPageSlots>;

  std::atomic<std::uint32_t> end_{0};  // past the highest slot that was ever raised
  std::array<std::atomic<Page*>, kPages> pages_{};
};

/// The order of one stream's work against all others.
///
/// Note [Stream clocks]
/// A stream's *marks* are numbered; each is an event record, made or still to be made. Who wants to
/// know later when the work submitted so far is over keeps next_mark(), the number of the first
/// mark that is not begun yet. Three facts make that right without a lock around driver calls:
///   * A mark takes its number before the driver's record call. Whoever read next_mark() == m
///     after submitting work read it before mark m was begun, so the driver saw the submission
///     before the record of m, and before that of any later mark, in whatever order the records of
///     concurrent threads arrive. (Were the record first in the driver's own lock, the number taken
///     before it would have been visible to the read behind the submission.) So "mark n is
///     reached" means that everything that was told a number <= n is over.
///   * A mark copies its stream's row before the record call, and a wait enters a row after the
///     driver's wait call. So what a mark claims to have seen was waited for in front of it.
///   * Entries only rise and each is true by itself, so rows can be read and written entry by
///     entry. A wait enters the mark itself last: who finds it finds what it implies, too.
/// A record in a capture is no point in time: it marks nothing, and waiting for it joins nothing.
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
  /// True for a stream that gantry does not own and which therefore may be destroyed at any time.
  [[nodiscard]] bool is_external() const { return is_external_; }

  /// The first mark that covers all work submitted so far. Costs one load.
  [[nodiscard]] std::uint64_t next_mark() const {
    return marks_.load(std::memory_order_relaxed) + 1;
  }
  /// next_mark(), fit to be asked for later. For a stream that gantry does not own the mark is
  /// recorded now, because it may be gone then.
  [[nodiscard]] std::uint64_t ticket() noexcept {
    return is_external_ ? record_ticket() : next_mark();
  }
  /// True if work submitted here from now on runs after `mark` of `other`: it is the same stream,
  /// this one waited for it, or it is reached. Not for work that is captured into a graph.
  [[nodiscard]] bool is_after(const StreamClock& other, std::uint64_t mark) const {
    if (mark <= other.completed()) return true;
    if (is_retired()) return false;
    return &other == this || mark <= seen_.get(other.slot_);
  }
  /// The last mark that is known to be reached, and with it all before.
  [[nodiscard]] std::uint64_t completed() const {
    return completed_.load(std::memory_order_acquire);
  }

  /// Numbers a mark; to be called before the driver's record call.
  void begin_mark(ClockMark& mark);
  /// As record_event of the driver, with a new mark for it. `mark` then has no clock if the record
  /// means nothing to clocks: in a capture, or on a retired stream.
  /// Throws: CudaError.
  void record(NativeEvent event, ClockMark& mark);
  /// This stream waited for `mark`; to be called after the driver's wait call.
  void join(const ClockMark& mark);
  /// The host knows that `mark` is reached, and with it what it had seen.
  static void complete(const ClockMark& mark);
  void complete(std::uint64_t mark);

  /// Asks the driver how far the stream is; true if completed() advanced. Records an event if
  /// `wanted` is neither reached nor under way, at most one at a time. Never blocks on the device,
  /// raises nobody's errors, and does nothing on a captured stream.
  bool poll(std::uint64_t wanted = UINT64_MAX) noexcept;
  /// False if wait_for(mark) would throw because the stream is being captured.
  [[nodiscard]] bool can_wait_for(std::uint64_t mark) noexcept;
  /// Blocks the host until `mark`, a number handed out before, is reached.
  /// Throws: CudaError of a failed stream, or if the stream is being captured; IndexError of a
  /// kernel, with `mark` completed.
  void wait_for(std::uint64_t mark);
  /// Makes later work of `waiter` wait for `mark`, a number handed out before, or for all of them;
  /// the host blocks only for a retired stream. False, with nothing done, if one of them is being
  /// captured. Throws: CudaError.
  bool order_before(StreamClock& waiter, std::uint64_t mark = UINT64_MAX);
  /// As order_before, for a ticket and a waiter that no clock follows. Touches neither this stream,
  /// which may be gone, nor the device: false, with nothing done, if no event covers the ticket, so
  /// that only synchronize_device_clocks() completes it. Throws: CudaError.
  bool order_ticket(NativeStream waiter, std::uint64_t ticket);

  /// The handle belongs to another stream now: nothing is ever recorded here again, and only a
  /// device-wide synchronization completes what no event under way covers.
  void retire();
  [[nodiscard]] bool is_retired() const { return retired_.load(std::memory_order_acquire); }
  /// True if the caller may put work on the stream as far as is known: its handle has not become
  /// another stream's, and it is not the per-thread default stream of another thread.
  [[nodiscard]] bool may_submit() const;

  /// False if the stream takes part in no capture as far as gantry has seen; else is_captured()
  /// tells. Costs one load. A capture is seen when it is gantry's own, and in others when memory is
  /// asked for or an event of gantry's is recorded or waited for.
  [[nodiscard]] bool may_be_captured() const { return captured_.load(std::memory_order_relaxed); }
  /// Asks the driver, and keeps the answer for may_be_captured(). Throws: CudaError.
  bool is_captured() const;

 private:
  friend class ClockRegistry;
  struct Flight;

  StreamClock(const Stream& stream, std::uint32_t slot);

  std::uint64_t record_ticket() noexcept;
  /// An event under way that covers `mark`; recorded now if there is none and it may be.
  /// nullptr if the stream is retired or not ours, so that no event can be recorded.
  [[nodiscard]] std::shared_ptr<Flight> flight_for(std::uint64_t mark);
  /// Records an event for a new mark; the lock is held. Throws: CudaError.
  std::shared_ptr<Flight> launch();
  bool land();

  const NativeStream native_;
  const std::uint64_t id_;
  const std::uint32_t slot_;
  const bool is_external_;
  std::atomic<bool> retired_{false};
  alignas(64) std::atomic<std::uint64_t> marks_{0};
  mutable std::atomic<bool> captured_{false};  ///< read with marks_ by every free
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  ClockRow seen_;
  std::mutex mutex_;  ///< guards what follows, and recording against retirement
  std::vector<std::shared_ptr<Flight>> flights_;  ///< events under way, oldest first
};

/// Marks every stream of a device, for who is about to wait for the whole device.
class DeviceMark {
 public:
  /// To be made before Driver::synchronize_device.
  explicit DeviceMark(int device);
  /// To be called after it succeeded: whatever was submitted before the constructor is over.
  void complete() const;

 private:
  std::vector<ClockMark> marks_;
};

/// Driver::synchronize_device, after which every number that any clock of the device handed out
/// before is reached; synchronize(Device) does the same. Throws: as the driver.
void synchronize_device_clocks(int device);

}  // namespace gantry
