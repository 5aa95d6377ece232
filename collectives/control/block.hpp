#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/call_faults.hpp"
#include "collectives/control/device_words.hpp"
#include "collectives/control/fault_words.hpp"
#include "collectives/control/file.hpp"
#include "collectives/descriptor.hpp"
#include "collectives/peers/process.hpp"

namespace gantry {

// Calls in which the hosts of all ranks wait for each other. Kept in flight files: add at the end.
enum class HostCall : std::uint8_t {
  none,  // a collective that needs such a wait first
  host_barrier,
  all_gather_bytes,
  split,
  register_memory,
};

std::string_view name(HostCall call);

// Shared memory of a group's ranks on one machine: who enqueued, started and finished what, and who
// is still there.
//
// A group has at most one failed rank, which is the same on all ranks. It died, left, aborted, or
// exceeded the deadline. From then on the group is broken, and the abort words of all ranks are
// set.
//
// Thread safety: record(), announce() and finish() by one thread at a time; the rest by any.
class ControlBlock {
 public:
  // Collective over `bootstrap`; page-locks this rank's words. The process's watchdog watches the
  // group from then on. Throws: PeerLostError, TimeoutError, Error.
  ControlBlock(Bootstrap& bootstrap, int rank, int size, std::chrono::milliseconds timeout,
               std::string_view group = "world");
  ~ControlBlock();
  ControlBlock(const ControlBlock&) = delete;
  ControlBlock& operator=(const ControlBlock&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const flight::View& view() const { return file_->view(); }
  const std::shared_ptr<ControlFile>& file() const { return file_; }
  // Named by `glaunch dump`.
  void describe_device(std::string_view text);

  // Says what this rank is about to enqueue. `sends` and `receives` are elements of blocks, by
  // rank, of an all_to_all whose blocks are of unequal sizes; `is_grouped`: a message beside
  // others.
  void record(const Descriptor& what, Algorithm algorithm, std::int64_t bytes, std::uint64_t stream,
              std::span<const std::int64_t> sends = {}, std::span<const std::int64_t> receives = {},
              bool is_grouped = false) noexcept;
  // A rank's words as this process maps them.
  DeviceWords* words(int rank) const;
  // This rank's, which its device may read and write at the same address.
  DeviceWords* device_words() const { return words(rank_); }

  // Announces this rank's next fence and returns its number; says what for, and how many
  // collectives this rank called before.
  std::uint64_t announce(HostCall call = HostCall::none, std::uint64_t collectives = 0);
  // Blocks the host until every rank announced `fence`.
  // Throws: PeerLostError if a rank died, left or aborted; TimeoutError naming who did not come.
  void await(std::uint64_t fence);
  // Announces a fence, awaits it, and compares what it is for on all ranks.
  // Throws: as await(); CollectiveMismatch on all ranks if all have come to different calls, which
  // the group survives; InvalidArgument on all ranks if one has called a collective instead, which
  // it does not, since that waits for the others.
  void meet(HostCall call, std::uint64_t collectives);
  // The last fence that this rank announced.
  std::uint64_t last_fence() const { return fence_; }

  // Throws PeerLostError or TimeoutError if the group is broken; else costs one load.
  void require_intact() const;
  bool broken() const noexcept;
  // Who is blamed, −1 while nobody is.
  int failed_rank() const noexcept;
  // Throws PeerLostError if a rank died, aborted, or left before `fence`; one system call a rank.
  void check_peers(std::uint64_t fence) const;

  // Compares what the ranks recorded as collective `call`, of those that did, the sizes of uneven
  // blocks included.
  // Throws: CollectiveMismatch naming the first that has it and the first that differs, or the
  // first two ranks whose blocks differ, and their sizes.
  void verify(std::uint64_t call) const;
  // True if a kernel of this rank reported a fault that nobody took; one load.
  bool has_fault() const noexcept;
  // That fault, which stays.
  std::optional<ReportedFault> fault() const noexcept;
  // Takes it, unless its kernel still runs. What it means: CollectiveMismatch naming two
  // ranks and their calls, or what require_intact() throws.
  std::optional<CallFault> take_fault();

  // For who learns of a loss from connections, which end before it is known why. Waits until it is,
  // for a while; `rank`, if it is known, enters nothing more. Throws: PeerLostError, TimeoutError.
  void await_diagnosis(int rank = -1) const;
  // As await_diagnosis(), and then blames `rank`, whose connection has ended. Throws what all ranks
  // are told; returns if the fault is this rank's, or nobody's.
  void explain_loss(int rank) const;
  // Blames the rank that `error` of a deadline is about: the first that it names, else the partner
  // of a message, or the one that has made the fewest calls. Throws what all ranks are told.
  void explain_lateness(const Descriptor& what, const TimeoutError& error) const;
  // Tells the launcher of a mismatch that all ranks throw.
  void tell_mismatch(const CollectiveMismatch& error) const noexcept;

  // Makes pending and later calls of every rank throw PeerLostError that blames this rank.
  void abort() noexcept;
  // From now on does so as soon as a call of this rank, of a graph perhaps, waits for so long.
  void abort_after(std::chrono::milliseconds timeout) noexcept;
  // Says that this rank enters nothing more and has closed the other ranks' memory, then waits up
  // to `timeout` until all others said so too or are dead; ranks of this process are not waited
  // for.
  void finish(std::chrono::milliseconds timeout) noexcept;
  // Tells whether every rank of another process has said so or is dead. Outlives this object.
  std::function<bool()> closing() const;

  // Calls `tell` when the group is broken: again and again, by any thread, but once at a time. It
  // waits for nothing, and does not call the block. Null: no call is under way any more.
  void on_loss(std::function<void()> tell);

  // For the watchdog.

  // Looks after the group once: blames ranks that left or, with a call under way for too long, that
  // did not come, and wakes kernels once somebody is blamed. True while a call is under way.
  bool watch() noexcept;
  // Blames `rank`, whose process has ended, unless it had left in order.
  void note_death(int rank) noexcept;
  const std::vector<std::shared_ptr<const PeerProcess>>& peers() const { return peers_; }

 private:
  // Blames a rank that died, aborted, or left before `fence`.
  void look_at_peers(std::uint64_t fence) const;
  std::string lateness_text(const std::vector<int>& missing, HostCall call) const;
  // Waits until every rank announced `fence`; `call` and `collectives` are what it is for.
  void await(std::uint64_t fence, HostCall call, std::uint64_t collectives);
  // Of the ranks that wait for `fence`, throws if they made different calls before or there.
  void compare_host_calls(std::uint64_t fence) const;
  // Blames a rank that has not come to a fence because it called a collective instead.
  void look_for_other_calls(std::uint64_t fence, HostCall call, std::uint64_t collectives) const;
  // What `rank` called as collective `number`, where its host has come to `call`.
  std::string call_text(int rank, std::uint64_t number, HostCall call,
                        std::uint64_t collectives) const;
  void blame(int rank, flight::Reason reason, const flight::Detail& detail = {}) const noexcept;
  // Throws, and tells the launcher.
  [[noreturn]] void throw_mismatch(const std::string& text, std::vector<int> ranks,
                                   std::vector<std::string> calls) const;
  // And tells who asked for it.
  void wake_kernels() const noexcept;
  [[noreturn]] void raise() const;
  // True if this process has other ranks of the group.
  bool is_among_several() const noexcept;
  // False in a child of a fork, whose end says nothing about the rank.
  bool is_mine() const noexcept;
  void verify_block_counts(const flight::Call& call) const;
  [[noreturn]] void raise_mismatch(std::uint64_t call, int peer) const;
  // Says that `call`, a message of this rank with `peer`, is another one there; none if it is none.
  std::optional<flight::Detail> different_messages(std::uint64_t call, int peer) const;
  // Blames this rank, where `call` began while another operation was running.
  void blame_overlap(std::uint64_t call) const;
  // Blames a rank if a kernel reported what the group does not survive: such a message, or
  // operations that overlap.
  void look_for_fatal_faults() const;
  std::string describe_diagnosis(const flight::Diagnosis& diagnosis) const;
  std::string timeout_text(const std::vector<int>& missing, std::string_view verb,
                           std::uint64_t call, flight::Lane lane = flight::Lane::collective) const;
  // " #41 all_reduce sum f32[4096]"; empty for 0.
  std::string call_suffix(std::uint64_t call, flight::Lane lane = flight::Lane::collective) const;
  // Blames a rank whom the bootstrap has lost.
  void look_for_lost_rank() const noexcept;
  // True while a kernel of `rank` has begun and not ended.
  bool is_busy(int rank) const noexcept;
  // The latest collective that some rank has started and not finished, else 0.
  std::uint64_t call_under_way() const noexcept;
  void look_for_absent_ranks(flight::Lane lane, std::uint64_t call, std::int64_t waited_ns);

  Bootstrap& bootstrap_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<ControlFile> file_;
  std::uint64_t fence_ = 0;
  bool departed_ = false;
  std::vector<std::shared_ptr<const PeerProcess>> peers_;  // null for ranks of this process
  // The watchdog's: the calls that were seen under way, and for how long.
  struct Watched {
    std::uint64_t call = 0;
    std::uint32_t run = 0;
    std::int64_t waited_ns = 0;
  };
  std::array<Watched, flight::kLanes> watched_;
  std::int64_t last_look_ns_ = 0;
  std::atomic<std::int64_t> abort_after_ns_{INT64_MAX};
  mutable std::atomic<std::int64_t> lost_since_ns_{0};  // 0: nobody is lost
  std::atomic<std::uint32_t> taken_fault_{0};           // the last one that was thrown
  mutable std::mutex loss_mutex_;
  std::function<void()> tell_loss_;
};

}  // namespace gantry
