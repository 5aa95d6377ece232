#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/control/fault_words.hpp"
#include "collectives/control/file.hpp"
#include "collectives/protocol/layout.hpp"
#include "collectives/selection/descriptor.hpp"
#include "core/processes/process_watch.hpp"
#include "job/flight_file.hpp"

namespace gantry {

struct CollectiveCall;

// The time for which a rank's device has been inside one run of a call.
// Thread safety: none.
class CallTimer {
 public:
  // Adds `elapsed_ns` if `progress` shows the run of the last update; else starts from zero.
  // Returns the time so far; 0 if no call is in progress.
  std::int64_t update(const flight::Progress& progress, std::int64_t elapsed_ns) {
    const bool is_same = is_running_ && call_ == progress.started && run_ == progress.run;
    is_running_ = progress.is_under_way();
    call_ = progress.started;
    run_ = progress.run;
    waited_ns_ = is_same && is_running_ ? waited_ns_ + elapsed_ns : 0;
    return waited_ns_;
  }

 private:
  bool is_running_ = false;
  std::uint64_t call_ = 0;
  std::uint32_t run_ = 0;
  std::int64_t waited_ns_ = 0;
};

// The wait of a kernel of the program for one rank; see Note [Waits of own kernels].
struct AwaitedPeer {
  std::uint32_t note = 0;  // 0: no kernel waits
  std::int64_t waited_ns = 0;
};

// Calls in which the hosts of all ranks wait for each other.
// Flight files hold these values: add new ones at the end.
enum class HostCall : std::uint8_t {
  none,  // a collective that begins with such a wait
  host_barrier,
  all_gather_bytes,
  split,
  register_memory,
  grow,
  suspend,
  resume,
  window,
};

std::string_view name(HostCall call);

// Bytes of a device's memory that this process uses.
struct MemoryUse {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
};

// A failed call and its error.
struct CallFault {
  std::uint64_t call = 0;
  std::exception_ptr error;
};

// The control segment of a group: memory that its ranks on one machine share.
//
// Each rank publishes the calls that it enqueued, started and finished, and its own state.
// A group has at most one failed rank, the same on every rank. That rank died, left, aborted, or
// missed a deadline. From then on the group is broken, and the abort words of all ranks are set.
//
// Thread safety: record(), announce() and finish() by one thread at a time; the rest by any.
class ControlSegment {
 public:
  // Maps the segment, page-locks this rank's words, and adds the group to the watchdog.
  // Collective over `bootstrap`. Throws: PeerLostError, TimeoutError, Error.
  ControlSegment(Bootstrap& bootstrap, int rank, int size, GroupTimeout timeout,
                 std::string_view group = "world");
  ~ControlSegment();
  ControlSegment(const ControlSegment&) = delete;
  ControlSegment& operator=(const ControlSegment&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupTimeout& timeout() const { return timeout_; }
  const flight::View& view() const { return file_->view(); }
  const std::shared_ptr<ControlFile>& file() const { return file_; }
  // Makes errors of the group have its name, which the program gave.
  void name_in_errors();
  // Sets the device name that `glaunch dump` prints, and the UUID by which gantry-top finds it.
  void describe_device(std::string_view text, std::string_view uuid);
  // Makes the watchdog publish what `read` returns, once a second. `read` must not call the driver.
  void publish_memory(std::function<MemoryUse()> read);

  // Records the call that this rank is about to enqueue. `bytes`: of its message, unless blocks of
  // the call have unequal sizes. `is_grouped`: a message of a group.
  void record(const CollectiveCall& call, Algorithm algorithm, std::int64_t bytes,
              std::uint64_t stream, bool is_grouped = false) noexcept;
  // The device words of a rank, at this process's mapping.
  DeviceWords* words(int rank) const;
  // This rank's device words. Its device reads and writes them at the same address.
  DeviceWords* device_words() const { return words(rank_); }

  // Announces that this rank has reached its next fence, and returns the fence's number.
  // Publishes the call of the fence and the number of collectives that this rank called before.
  std::uint64_t announce(HostCall call = HostCall::none, std::uint64_t collectives = 0);
  // Blocks the host until every rank announced `fence`.
  // Throws: PeerLostError if a rank died, left or aborted; TimeoutError naming the late ranks.
  void await(std::uint64_t fence);
  // Announces a fence, awaits it, and compares the calls of all ranks.
  // Throws: as await(); CollectiveMismatch on all ranks if their calls differ. The group stays
  // intact if every rank reached the fence. It breaks if one called a collective instead, whose
  // kernel waits for the others.
  // `timeout`: of the call; 0: the group's.
  void rendezvous(HostCall call, std::uint64_t collectives, std::chrono::milliseconds timeout = {});
  // The number of the last fence that this rank announced.
  std::uint64_t last_fence() const { return fence_; }

  // Throws PeerLostError or TimeoutError if the group is broken; else costs one load.
  void require_intact() const;
  bool broken() const noexcept;
  // The failed rank, −1 while the group is intact.
  int failed_rank() const noexcept;
  // Throws PeerLostError if a rank died, aborted, or left before `fence`; one system call a rank.
  void check_peers(std::uint64_t fence) const;

  // Compares the records of collective `call` on all ranks that have one, and their block sizes.
  // Throws: CollectiveMismatch naming the first rank with a record and the first that differs, or
  // the first two ranks whose block sizes differ.
  void verify(std::uint64_t call) const;
  // True if this rank recorded block sizes for collective `call`.
  bool has_block_counts(std::uint64_t call) const;
  // True if a fault that a kernel of this rank reported is pending; one load.
  bool has_fault() const noexcept;
  // The pending fault, which stays pending.
  std::optional<ReportedFault> fault() const noexcept;
  // Takes the pending fault, unless its kernel still runs. Its error is a CollectiveMismatch
  // naming two ranks and their calls, or the error that require_intact() throws.
  std::optional<CallFault> take_fault();

  // Breaks the group: `rank` is late. `call` and `how` are as in flight::Detail.
  void mark_late(int rank, const std::string& text, std::string call,
                 const char* how) const noexcept;

  // Waits up to two seconds for the diagnosis of a loss, after a connection ended: connections end
  // before the cause is known. `rank`, if known, enters no further call.
  // Throws: PeerLostError, TimeoutError.
  void await_diagnosis(int rank = -1) const;
  // Calls await_diagnosis(), then marks `rank`, whose connection ended, failed. Throws the error of
  // the diagnosis. Returns if `rank` is unknown or this rank.
  void diagnose_loss(int rank) const;
  // Marks the late rank of `error`, a missed deadline, failed. It is the first rank that `error`
  // names, else the peer of a message, else the rank with the fewest calls. Throws the error of the
  // diagnosis.
  void diagnose_timeout(const Descriptor& what, const TimeoutError& error) const;
  // Reports a mismatch that all ranks throw to the launcher.
  void report_mismatch(const CollectiveMismatch& error) const noexcept;

  // Marks this rank failed: pending and later calls of every rank throw PeerLostError with it.
  void abort() noexcept;
  // Makes the watchdog call abort() once a call of this rank, replayed or not, runs for `timeout`.
  void abort_after(std::chrono::milliseconds timeout) noexcept;
  // Publishes that this rank enters no further call and has closed the other ranks' memory. Then
  // waits up to `timeout` until every rank of another process has finished too or is dead.
  void finish(std::chrono::milliseconds timeout) noexcept;
  // A predicate: every rank of another process has finished or is dead. It may outlive this object.
  std::function<bool()> closing() const;

  // Sets the callback of a broken group. Any thread calls it, repeatedly, but one call at a time.
  // It must not block or use this object. After on_loss(nullptr) returns, no call is in progress.
  void on_loss(std::function<void()> callback);

  // For the watchdog.

  // Checks the group once. Marks a rank failed that left, or that is late for a call in progress.
  // Wakes the kernels of a broken group. Returns true while a call is in progress.
  bool watch() noexcept;
  // Marks `rank`, whose process has ended, failed, unless it had finished before.
  void mark_dead(int rank) noexcept;
  const std::vector<std::shared_ptr<const ProcessWatch>>& peers() const { return peers_; }

 private:
  // Marks a rank failed that died, aborted, or left before `fence`.
  void mark_failed_peers(std::uint64_t fence) const;
  std::string host_timeout_text(const std::vector<int>& missing, HostCall call,
                                std::chrono::milliseconds timeout) const;
  // Waits until every rank announced `fence`; `call` and `collectives` as given to announce().
  void await(std::uint64_t fence, HostCall call, std::uint64_t collectives,
             std::chrono::milliseconds timeout);
  // Throws CollectiveMismatch if the ranks announced `fence` for different calls.
  void compare_host_calls(std::uint64_t fence) const;
  // Marks a rank failed that called a collective instead of the call of `fence`.
  void detect_other_calls(std::uint64_t fence, HostCall call, std::uint64_t collectives) const;
  // The text of collective `number` of `rank`, or of `call` if it made fewer collectives.
  std::string call_text(int rank, std::uint64_t number, HostCall call,
                        std::uint64_t collectives) const;
  void mark_failed(int rank, flight::Reason reason,
                   const flight::Detail& detail = {}) const noexcept;
  // Note [One diagnosis]
  void publish_diagnosis(int rank, flight::Reason reason,
                         const flight::Detail& detail) const noexcept;
  // Throws CollectiveMismatch, and reports it to the launcher.
  [[noreturn]] void throw_mismatch(const std::string& text, std::vector<int> ranks,
                                   std::vector<std::string> calls) const;
  // Sets the abort words of all ranks and calls the loss callback.
  void wake_kernels() const noexcept;
  [[noreturn]] void raise() const;
  // True if this process has other ranks of the group too.
  bool shares_process() const noexcept;
  // False in a forked child, which is not the rank.
  bool is_owner() const noexcept;
  void verify_block_counts(const flight::Call& call) const;
  [[noreturn]] void raise_mismatch(std::uint64_t call, int peer) const;
  // The mismatch of `call`, a message between this rank and `peer`; nullopt if it is no message.
  std::optional<flight::Detail> different_messages(std::uint64_t call, int peer) const;
  // The mismatch of `fault`, of a call in the body of a condition or behind it, with the other
  // rank's call if its device has reported it; nullopt for other faults.
  std::optional<flight::Detail> different_conditions(const ReportedFault& fault) const;
  // Marks this rank failed: `call` began while another operation was running.
  void mark_overlap(std::uint64_t call) const;
  // Marks a rank failed if a kernel reported a fault that breaks the group: a mismatched message
  // or overlapping operations.
  void detect_fatal_faults() const;
  std::string describe_diagnosis(const flight::Diagnosis& diagnosis) const;
  // `timeout`: of the call; 0: the group's.
  std::string timeout_text(const std::vector<int>& missing, std::string_view verb,
                           std::uint64_t call, std::chrono::milliseconds timeout,
                           flight::Queue queue = flight::Queue::collective) const;
  // The text of an error with the group's name, if it is in errors.
  std::string with_name(std::string text) const;
  // The timeout that this rank gave a call; 0: none.
  std::chrono::milliseconds timeout_of(flight::Queue queue, std::uint64_t call) const;
  // " #41 all_reduce sum f32[4096]", as `rank` called it (-1: any rank); empty for 0.
  std::string call_suffix(std::uint64_t call, flight::Queue queue = flight::Queue::collective,
                          int rank = -1) const;
  // Writes the memory that this process uses into the segment, at most once a second.
  void refresh_memory(std::int64_t now_ns) noexcept;
  // Marks a rank failed that the bootstrap reports as lost.
  void detect_lost_rank() const noexcept;
  // True while a kernel of `rank` is running.
  bool is_busy(int rank) const noexcept;
  // The latest collective that a rank has started and not finished, else 0.
  std::uint64_t running_call() const noexcept;
  // Marks a rank failed that a kernel of the program on this rank waits for too long. Returns true
  // while one waits.
  bool watch_own_kernels(std::int64_t scan_ns);
  // The ranks that kernels of `rank` wait for, as far as they have reported it.
  std::vector<int> awaited_by(int rank) const;
  bool waits_in_own_kernel(int rank) const;
  // The rank that does not wait itself, behind `peer` in the chain of waits; -1: all wait.
  int late_behind(int peer) const;
  void mark_late_to_signal(int peer, int channel);
  // Marks a rank failed that `call` of this rank has waited for longer than the timeout.
  void detect_absent_ranks(flight::Queue queue, std::uint64_t call, std::int64_t waited_ns);

  Bootstrap& bootstrap_;
  int rank_;
  int size_;
  GroupTimeout timeout_;
  std::string name_;  // of the group, in errors; empty: it is not
  std::shared_ptr<ControlFile> file_;
  std::uint64_t fence_ = 0;
  bool has_finished_ = false;
  std::vector<std::shared_ptr<const ProcessWatch>> peers_;  // null for ranks of this process
  std::array<CallTimer, flight::kQueues> timers_;           // used by the watchdog
  std::array<AwaitedPeer, kMaxRanks> awaited_{};            // by rank; used by the watchdog
  std::int64_t last_scan_ns_ = 0;
  std::atomic<std::int64_t> abort_after_ns_{INT64_MAX};
  mutable std::atomic<std::int64_t> lost_since_ns_{0};  // 0: no rank is lost
  std::atomic<std::uint32_t> taken_fault_{0};           // the last fault that was thrown
  mutable std::mutex diagnosis_mutex_;  // for the words that this rank writes of a diagnosis
  mutable std::mutex loss_mutex_;
  std::function<void()> loss_callback_;
  // Collectives in bodies of conditions, and behind them: graphs run them when the records are
  // gone.
  mutable std::mutex conditions_mutex_;  // guards the next member
  std::set<std::uint64_t> condition_calls_;
  std::mutex memory_mutex_;
  std::function<MemoryUse()> read_memory_;
  std::int64_t last_memory_ns_ = 0;
};

// The thread of this process that checks all its groups. It wakes kernels and host calls when a
// rank dies, leaves, or is late. It starts with the first group and never calls the driver. Thread
// safety: any thread may call every member.
class Watchdog {
 public:
  // Checks `group` periodically until remove(), which waits for a check in progress.
  static void add(ControlSegment& group);
  static void remove(ControlSegment& group) noexcept;
};

}  // namespace gantry
