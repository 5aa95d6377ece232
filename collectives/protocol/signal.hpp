// Waits, signals, and the beginning and end of every operation, for any kind of Block.
#pragma once

#include <type_traits>

#include <gantry/core/macros.hpp>

#include "collectives/protocol/plan.hpp"
#include "core/code_size.hpp"
#include "kernels/peers/nary_plan.hpp"

namespace gantry::protocol {

// Note [Blocks]
// Algorithms are written once, on a Block: the threads that together do one part of an operation.
// On the GPU it is a thread block. On simulated devices it is one host thread. Block b of a rank
// waits only for blocks b of other ranks. When these are late it also reads the entry of their
// block 0. Blocks of one rank may therefore run one after the other.
//
//   index() count()          number of this block, and of all blocks
//   is_leader()              true for one thread
//   for_each(n, f)           f(i) for i in [0, n), by all threads
//   for_each_rank(n, f)      as for_each; a thread per rank, so that waits overlap
//   each_finds(n, f)         true if all of f(0) … f(n - 1) are; f may wait. Every warp that copies
//                            or reduces evaluates f itself, each by one thread, and may get another
//                            result; f changes no variables, which other threads would not see
//   sync(), any(flag)        barrier; any: true for all if true for one
//   acquire(word), release(word, value)     64-bit signals, ordered for all ranks
//   post(word, value)        a signal, or an address, that orders nothing
//   read_ll(packet) write_ll(packet, …)     16 bytes with flags
//   read_ll128(…) write_ll128(…) read_ll128_flag(line), for_each_ll128_line(n, f), kLl128WordsHeld,
//   first_ll128_word(), any_of_ll128_line(flag), any_of_warp(flag)    see Note [LL and LL128]
//   note_reported() has_reported()   sets, tells: this thread reported the operation to the host
//   publish(word, value)     a store to host memory; publish_last(…): after all before it
//   claim(word)              true for the one thread of the device that changes it from 0
//   count_own(word)          adds 1 to a word in this rank's memory, returns its old value, which
//                            costs nothing until it is used
//   from_leader(value)       the leader's value, to all threads
//   takes_turn(checks)       true if this block may read the host's memory now: Note [Turns]
//   pause(spins)             between polls; kSettlingPolls: polls to wait for what should take
//                            milliseconds
//   copy(n, most, run)       all of run(0) … run(n - 1), each a Run of at most `most` bytes
//   reduce(how, to, bytes, from)            reduces `from`, in its order, into all of `to`
//   pipeline<W…>(n, stages…) see Note [Warp roles]
//
// Note [Warp roles]
// An operation of many chunks has stages. pipeline() gives each stage a role: W of the block's
// warps. The last warp of a role is its signalling warp, and the others are working warps. A
// working warp has the interface of a Block. It runs its part of stage.work(role, chunk) for all
// chunks, and does not wait for the role's other warps. When all working warps have completed a
// chunk, the signalling warp runs stage.signal(role, chunk). wait_role(r, n) waits until role r has
// completed n chunks. If work() returns false, all roles stop. (The same division of labour as
// CUTLASS's warp specialization.)
// On simulated devices the roles take turns, the last role first. Each role is one chunk behind the
// role before it.
template <class Work, class Signal>
struct Stage {
  Work work;
  Signal signal;
};
template <class Work, class Signal>
Stage(Work, Signal) -> Stage<Work, Signal>;

GANTRY_HD constexpr std::uint64_t signal_word(std::uint32_t epoch, std::uint32_t value) {
  return static_cast<std::uint64_t>(epoch) << 32 | value;
}

// The result of a wait. `stopped`: another role of the block has reported a fault.
// `overlaps`: another operation of the rank is running.
enum class Outcome : std::uint32_t { done, mismatch, aborted, stopped, overlaps };

// Polls of a word between two checks of words that are slow to read.
inline constexpr std::uint32_t kPollsPerCheck = 256;

GANTRY_HD inline SignalPad& pad_of(const Group& group, int rank) {
  return *reinterpret_cast<SignalPad*>(group.workspaces[rank]);
}

// True if the semaphore `word` has reached chunk `chunk`, at least 1, of operation `epoch`. A peer
// may be one epoch ahead, but not two: it cannot leave an epoch that this rank has not entered. A
// word from the last operation in which this block took part may appear ahead by any other distance
// once epochs have wrapped. A zeroed word has no chunk.
GANTRY_HD inline bool has_reached(std::uint64_t word, std::uint32_t epoch, std::uint32_t chunk) {
  const std::uint32_t ahead = static_cast<std::uint32_t>(word >> 32) - epoch;
  const auto at = static_cast<std::uint32_t>(word);
  return (ahead == 1 && at > 0) || (ahead == 0 && at >= chunk);
}

// The state of an entry word of operation `epoch`: absent, the `expected` call, or another one.
// A zeroed word can have a valid epoch once epochs have wrapped, but it has no digest.
enum class Entry : std::uint32_t { absent, agrees, differs };
GANTRY_HD constexpr Entry entry_in(std::uint64_t word, std::uint32_t epoch,
                                   std::uint32_t expected) {
  if (static_cast<std::uint32_t>(word >> 32) != epoch) return Entry::absent;
  const auto digest = static_cast<std::uint32_t>(word);
  if ((digest & ~kOpens) == expected) return Entry::agrees;
  return digest == 0 ? Entry::absent : Entry::differs;
}

// Note [Progress reports]
// A store to host memory at the end of a kernel costs a microsecond. A short operation therefore
// reports nothing. An operation that waits long reports that it began and, later, that it ended.
// When one rank is late, the watchdog thus finds all other ranks in the operation. Each block
// repeats its report, because another block may have reported the end in the meantime.
template <class Block>
GANTRY_HD void report_progress(Block& block, const Group& group, std::uint64_t call,
                               std::uint32_t epoch) {
  block.set_own(&pad_of(group, group.rank).reported[block.index()], epoch);
  block.fence();
  block.publish(&group.words->started, run_word(call, epoch));
  block.publish(&group.words->finished, run_word(call - 1, epoch));
}

// Functions that are not inlined get a copy of their Block: a reference would keep it out of
// registers. Hence their callers note the report.

// Note [Fault words]
// Kernels of three operation queues may fail at the same time, each in many threads. One set of
// words reports the fault: the call, its peer, and the fault word, which is also the lock. The
// thread that changes the fault word from 0 to kFaultClaimed writes the other two, and then the
// fault. Other threads return: the first fault stays until the host has taken it. The host changes
// a fault to kFaultClaimed while it reads the other two words, and then to 0. Only threads of one
// device compete for a 0, and the host does not write a word that is 0. So the exchange need not be
// atomic with respect to the host. Over PCIe it may not be.
template <class Block>
GANTRY_HD void report_fault(Block& block, DeviceWords* words, Outcome outcome, int peer,
                            std::uint64_t call, std::uint32_t epoch) {
  if (!block.claim(&words->fault)) return;
  const auto fault = outcome == Outcome::mismatch   ? OperationFault::mismatch
                     : outcome == Outcome::overlaps ? OperationFault::overlap
                                                    : OperationFault::aborted;
  block.publish(&words->fault_peer, static_cast<std::int32_t>(peer));
  block.publish(&words->fault_call, call);
  block.publish_last(&words->fault, fault_word(fault, epoch));
}

// Note [Operations that overlap]
// Kernels of one rank's operations run one after the other. Their operation queue orders calls, and
// also the calls within one graph. It cannot order the replay of a graph with other work: the
// library does not see the launch. Two concurrent operations would use the same epoch, and read
// each other's data. Each block therefore counts the operations that it begins and ends, in this
// rank's memory. If the previous operation has not ended, the block reports the overlap and touches
// nothing. The host then breaks the group, which ends the other blocks.
//
// Of two operations that begin within a microsecond, both may see that none is running. The counter
// is atomic, so the operation that counts itself last gets a number that is not its epoch. A short
// operation has no time to wait for that number, and looks at it when it ends. Before an operation
// reports another fault, it compares the counter, too: its peers may have met the other operation
// in its place.

// True if another operation of the rank has begun since this one began.
template <class Block>
GANTRY_HD bool is_overlapped(Block& block, const Group& group, std::uint32_t epoch) {
  return static_cast<std::int32_t>(block.own(&pad_of(group, group.rank).begun[block.index()]) -
                                   epoch) > 0;
}

// Reports the fault of an operation that has no result; other threads may report the same.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void fail(Block block, const Group& group, Outcome outcome, int peer,
                                    std::uint64_t call, std::uint32_t epoch) {
  if (outcome == Outcome::stopped) return;
  if (is_overlapped(block, group, epoch)) {
    outcome = Outcome::overlaps;
    peer = group.rank;
  }
  if (outcome == Outcome::mismatch) {
    block.set_own(&pad_of(group, group.rank).mismatched[block.index()], epoch);
  }
  report_progress(block, group, call, epoch);
  report_fault(block, group.words, outcome, peer, call, epoch);
}

// Note [Turns]
// Reads of one word of the host's memory by the blocks of a kernel are served one after the other,
// a microsecond each. If all blocks of a rank that waits looked at its abort word at once, a signal
// that arrives meanwhile would be seen up to 64 us later. So they take turns, and the block that
// finds the word set tells the others through the rank's own memory.

// True if the rank's kernels must end. `checks` counts the checks of one wait.
template <class Block>
GANTRY_HD bool must_end(Block& block, const Group& group, std::uint32_t checks) {
  SignalPad& pad = pad_of(group, group.rank);
  if (block.takes_turn(checks) && block.is_aborted(group.words)) {
    block.set_own(&pad.aborted, std::uint32_t{1});
  }
  return block.own(&pad.aborted) != 0;
}

// Reports progress after a long wait, and checks whether the operation must end. `checks` counts
// the checks of one wait.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome check_abort(Block block, const Group& group, std::uint64_t call,
                                              std::uint32_t epoch, std::uint32_t checks) {
  if (block.takes_turn(checks) ||
      block.own(&pad_of(group, group.rank).reported[block.index()]) != epoch) {
    report_progress(block, group, call, epoch);
  }
  if (block.is_stopped()) return Outcome::stopped;
  if (must_end(block, group, checks)) return Outcome::aborted;
  return is_overlapped(block, group, epoch) ? Outcome::overlaps : Outcome::done;
}

// As check_abort(), and checks the entry of block 0 of `peer`; mismatch if it entered another call.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome check_entry(Block block, const Group& group, int peer,
                                              std::uint64_t call, std::uint32_t epoch,
                                              std::uint32_t expected, std::uint32_t checks) {
  const std::uint64_t word =
      block.acquire(&pad_of(group, group.rank).entry_barrier[epoch & 1][0][peer]);
  const Outcome outcome = check_abort(block, group, call, epoch, checks);
  return entry_in(word, epoch, expected) == Entry::differs ? Outcome::mismatch : outcome;
}

// As check_abort(), and checks the entry of `peer`; mismatch if the peer has withdrawn it.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome check_withdrawal(Block block, const Group& group, int peer,
                                                   std::uint64_t call, std::uint32_t epoch,
                                                   std::uint32_t checks) {
  const std::uint64_t word =
      block.acquire(&pad_of(group, group.rank).entry_barrier[epoch & 1][block.index()][peer]);
  const Outcome outcome = check_abort(block, group, call, epoch, checks);
  return word == signal_word(epoch, kWithdrawn) ? Outcome::mismatch : outcome;
}

// Waits until block `theirs` of `peer` has entered operation `epoch` with the digest `expected`.
template <class Block>
GANTRY_HD Outcome wait_entry(Block& block, const Group& group, int peer, std::uint64_t call,
                             int theirs, std::uint32_t epoch, std::uint32_t expected) {
  const std::uint64_t* word = &pad_of(group, group.rank).entry_barrier[epoch & 1][theirs][peer];
  GANTRY_ROLLED
  for (std::uint32_t spins = 1;; ++spins) {
    const Entry entry = entry_in(block.acquire(word), epoch, expected);
    if (entry == Entry::agrees) return Outcome::done;
    if (entry == Entry::differs) return Outcome::mismatch;
    if (spins % kPollsPerCheck == 0) {
      block.note_reported();
      const Outcome outcome =
          check_entry(block, group, peer, call, epoch, expected, spins / kPollsPerCheck);
      if (outcome != Outcome::done) return outcome;
    }
    block.pause(spins);
  }
}

// Waits until the semaphore `word`, written by `peer`, has reached `chunk` of operation `epoch`.
template <class Block>
GANTRY_HD Outcome wait_chunk(Block& block, const Group& group, int peer, const std::uint64_t* word,
                             std::uint64_t call, std::uint32_t epoch, std::uint32_t chunk) {
  GANTRY_ROLLED
  for (std::uint32_t spins = 1;; ++spins) {
    if (has_reached(block.acquire(word), epoch, chunk)) return Outcome::done;
    if (spins % kPollsPerCheck == 0) {
      block.note_reported();
      const Outcome outcome =
          check_withdrawal(block, group, peer, call, epoch, spins / kPollsPerCheck);
      if (outcome != Outcome::done) return outcome;
    }
    block.pause(spins);
  }
}

// The epoch of the operation that is running, or of the next one.
template <class Block>
GANTRY_HD std::uint32_t current(Block& block, const Group& group) {
  return block.own(&pad_of(group, group.rank).ended[block.index()]) + 1;
}

inline constexpr std::uint64_t kOverlaps = std::uint64_t{1} << 32;

// Reports that another operation of the rank is running.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void report_overlap(Block block, const Group& group, std::uint64_t call,
                                              std::uint32_t epoch) {
  if (!block.is_leader()) return;
  report_fault(block, group.words, Outcome::overlaps, group.rank, call, epoch);
}

// True if a block of the operation before found a mismatch. The same for all threads.
template <class Block>
GANTRY_NOINLINE GANTRY_HD bool follows_mismatch(Block block, const Group& group) {
  const std::uint32_t epoch = current(block, group);
  bool found = false;
  block.for_each(kMaxBlocks, [&](std::int64_t i) {
    found = found || block.own(&pad_of(group, group.rank).mismatched[i]) == epoch - 1;
  });
  return block.any(found);
}

// The begin of one block's part of an operation.
struct Begun {
  std::uint32_t epoch = 0;
  std::uint32_t before = 0;  // the last one counted before; known to the leader, after a while
};

// Begins this block's part of an operation. Returns false if there is none: another operation of
// the rank is running, which is reported, or the operation continues one that reported a mismatch.
// Unless it waits for the count of operations, check_begun() must follow.
template <bool Waits = true, class Block>
GANTRY_HD bool begin(Block& block, const Group& group, std::uint64_t call, Begun& begun) {
  if (group.continues && follows_mismatch(block, group)) return false;
  // Inline, because the code of a function would be fetched first. All threads take the leader's
  // epoch: theirs may be from before or after the end of another operation.
  std::uint64_t number = 0;
  if (block.is_leader()) {
    SignalPad& pad = pad_of(group, group.rank);
    const std::uint32_t ended = block.own(&pad.ended[block.index()]);
    const bool is_running = block.own(&pad.begun[block.index()]) != ended;
    begun.before = block.count_own(&pad.begun[block.index()]);
    number = ended + 1;
    if (is_running || (Waits && begun.before != ended)) number |= kOverlaps;
  }
  number = block.from_leader(number);
  begun.epoch = static_cast<std::uint32_t>(number);
  if (number < kOverlaps) return true;
  report_overlap(block, group, call, begun.epoch);
  return false;
}

// Reports an operation that began at the same time as this one and was counted before it. Called
// when it no longer matters that the leader waits for the count.
template <class Block>
GANTRY_HD void check_begun(Block& block, const Group& group, std::uint64_t call,
                           const Begun& begun) {
  if (block.is_leader() && begun.before != begun.epoch - 1) {
    report_overlap(block, group, call, begun.epoch);
  }
}

// Reports the end of an operation that has reported its begin, unless another block that did is
// still running. All threads look, since the words of 64 blocks, read one after the other, cost
// 20 us.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void report_end(Block block, const Group& group, std::uint64_t call,
                                          std::uint32_t epoch) {
  const SignalPad& pad = pad_of(group, group.rank);
  block.fence();
  block.sync();
  bool is_running = false;
  block.for_each(block.count(), [&](std::int64_t i) {
    is_running =
        is_running || (block.own(&pad.reported[i]) == epoch && block.own(&pad.ended[i]) != epoch);
  });
  if (block.any(is_running) || !block.is_leader()) return;
  block.publish(&group.words->finished, run_word(call, epoch));
}

// Ends this block's part of an operation. Every block calls it, also after a fault, so that the
// epochs of all ranks stay equal. Blocks of the kernel also count for the blocks that were not
// launched. Of the blocks that reported the beginning, the last one reports the end. Of two blocks
// that end at the same time, at least one sees the other's epoch.
template <class Block>
GANTRY_HD void end(Block& block, const Group& group, std::uint64_t call, std::uint32_t epoch) {
  const bool reported = block.any(block.has_reported());
  SignalPad& pad = pad_of(group, group.rank);
  const int rounds = (kMaxBlocks - 1 - block.index()) / block.count() + 1;
  block.for_each(rounds, [&](std::int64_t i) {
    const std::int64_t at = block.index() + i * block.count();
    if (i > 0) block.set_own(&pad.begun[at], epoch);
    block.set_own(&pad.ended[at], epoch);
  });
  if (reported) report_end(block, group, call, epoch);
}

// Signals the entry of this rank to all peers: digest_for(peer) to each.
template <class Block, class DigestFor>
GANTRY_HD void signal_entries(Block& block, const Group& group, int index, std::uint32_t epoch,
                              const DigestFor& digest_for) {
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    block.release(&pad_of(group, peer).entry_barrier[epoch & 1][index][group.rank],
                  signal_word(epoch, digest_for(peer)));
  });
}

// Signals to all peers that block `index` of this rank has done `chunks` chunks: full, reduced, or
// empty.
template <class Block>
GANTRY_HD void signal_chunks(Block& block, const Group& group, Semaphores SignalPad::*semaphores,
                             int index, std::uint32_t epoch, std::int64_t chunks) {
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    block.release(&(pad_of(group, peer).*semaphores)[index][group.rank],
                  signal_word(epoch, static_cast<std::uint32_t>(chunks)));
  });
}

// Waits for the entries of block `theirs` of all peers. Returns false, with the fault reported, if
// the operation must end.
template <class Block, class Expected>
GANTRY_HD bool wait_entries(Block& block, const Group& group, std::uint64_t call, int theirs,
                            std::uint32_t epoch, const Expected& expected) {
  bool failed = false;
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    const Outcome outcome = wait_entry(block, group, peer, call, theirs, epoch, expected(peer));
    if (outcome == Outcome::done) return;
    block.note_reported();
    fail(block, group, outcome, peer, call, epoch);
    failed = true;
  });
  return !block.any(failed);
}

// Waits until the semaphores `words` of all peers have reached `chunk`. Returns false, with the
// fault reported, if the operation must end.
template <class Block>
GANTRY_HD bool wait_chunks(Block& block, const Group& group, const std::uint64_t* words,
                           std::uint64_t call, std::uint32_t epoch, std::uint32_t chunk) {
  bool failed = false;
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    const Outcome outcome = wait_chunk(block, group, peer, &words[peer], call, epoch, chunk);
    if (outcome == Outcome::done) return;
    block.note_reported();
    fail(block, group, outcome, peer, call, epoch);
    failed = true;
  });
  return !block.any(failed);
}

// The element type of copies without a reduction.
struct Moved {};
template <class T>
inline constexpr bool kReduces = !std::is_same_v<T, Moved>;

// Calls run(TypeTag<T>) for the elements that are combined; Moved if they are not.
template <class Run>
void with_element(const ReduceBy& how, Run&& run) {
  if (how.copies) return run(TypeTag<Moved>{});
  kernels::dispatch_nary(how.dtype, run);
}

// Bytes to copy; any alignment, any rank's workspace.
struct Run {
  std::byte* to;
  const std::byte* from;
  std::int64_t bytes;
};

// `count` arrays, at least `Least`, at one stride; aligned to 16 bytes.
template <int Least>
struct StridedArrays {
  static constexpr int kLeast = Least;
  const std::byte* first;
  std::int64_t stride;
  int count;

  GANTRY_HD const std::byte* at(int i) const { return first + i * stride; }
};

// `count` arrays, each at `offset` from its own base; aligned to 16 bytes.
struct Arrays {
  static constexpr int kLeast = 1;
  const std::byte* const* bases;
  std::int64_t offset;
  int count;

  GANTRY_HD const std::byte* at(int i) const { return bases[i] + offset; }
};

// Copies of one array, at `offset` from the base of each of `ranks`, one bit each.
struct Targets {
  std::byte* const* bases;
  std::int64_t offset;
  std::uint32_t ranks;
};

// Bytes of a run of `bytes` that begin at `begin`, at most `most`.
GANTRY_HD inline std::int64_t clipped(std::int64_t bytes, std::int64_t begin, std::int64_t most) {
  const std::int64_t rest = bytes - begin;
  return rest < 0 ? 0 : rest < most ? rest : most;
}

}  // namespace gantry::protocol
