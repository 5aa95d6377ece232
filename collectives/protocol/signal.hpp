// Waiting for peers, and the beginning and end of every operation; for any kind of Block.
#pragma once

#include <type_traits>

#include <gantry/core/macros.hpp>

#include "collectives/protocol/plan.hpp"

namespace gantry::protocol {

// Note [Blocks]
// Algorithms are written once, on a Block: the threads that work together on one share of an
// operation. On the GPU it is a thread block, on simulated devices one host thread that takes the
// threads' turns. Block b of a rank waits for nobody but blocks b of other ranks (and, when they
// do not come, for what block 0 says about their call), so that blocks may also run one after the
// other.
//
//   index() count()          which block of how many
//   is_leader()              true for one thread
//   for_each(n, f)           f(i) for i in [0, n), by all threads
//   for_each_rank(n, f)      as for_each; a thread per rank, so that waits overlap
//   each_finds(n, f)         true if all of f(0) … f(n - 1) are, which may wait; every warp that
//                            copies and folds asks for itself, and may find another answer
//   sync(), any(flag)        barrier; any: true for all if true for one
//   acquire(word), release(word, value)     64-bit signals, ordered for all ranks
//   post(word, value)        a signal that orders nothing
//   read(packet) write(packet, …)           16 bytes with flags
//   read_line(…) write_line(…) read_line_flag(line), for_each_line(n, f), kLineWordsHeld,
//   first_line_word(), any_of_line(flag), any_of_warp(flag)    see Note [Wires]
//   note_told() has_told()   whether this thread told the host of the operation
//   publish(word, value)     a store to host memory; publish_last(…): after all before it
//   claim(word)              true for the one thread of the device that changes it from 0
//   count_own(word)          adds 1 to a word of this rank's and returns what it was
//   from_leader(value)       the leader's value, to all threads
//   pause(spins)             between polls
//   copy(n, most, run)       all of run(0) … run(n - 1), each a Run of at most `most` bytes
//   fold(how, to, bytes, from)              all of `to` = the fold of `from`
//   pipeline<W…>(n, stages…) see Note [Crews]
//
// Note [Crews]
// An operation of many steps has stages: pipeline() gives each a crew of the block's warps (W of
// them). Every warp but one is a Block of its own that does its share of stage.work(crew, step) for
// all steps in its own time; the last one follows and, when all of the crew ended a step, does
// stage.tell(crew, step). await_crew(c, n) waits until crew c ended n steps. If work() returns
// false, all stop. On simulated devices crews take turns, the last one first, each a step behind
// the one before.
template <class Work, class Tell>
struct Stage {
  Work work;
  Tell tell;
};
template <class Work, class Tell>
Stage(Work, Tell) -> Stage<Work, Tell>;

GANTRY_HD constexpr std::uint64_t signal(std::uint32_t sequence, std::uint32_t value) {
  return static_cast<std::uint64_t>(sequence) << 32 | value;
}

// `stopped`: another crew of the block found out why, and reported it.
// `overlaps`: another operation of the rank was running.
enum class Outcome : std::uint32_t { done, mismatch, aborted, stopped, overlaps };

// Polls between looks at what is slow to read.
inline constexpr std::uint32_t kPollsPerLook = 256;

GANTRY_HD inline SignalPad& pad_of(const Group& group, int rank) {
  return *reinterpret_cast<SignalPad*>(group.workspaces[rank]);
}

// True if `word` has come to step `step`, at least 1, of operation `sequence`. A peer may be one
// operation ahead, since it cannot leave that before this rank enters it. What stands there from
// long ago, when this block last took part, may look ahead by any other distance once numbers went
// round; and zeroed words hold no step.
GANTRY_HD inline bool has_come(std::uint64_t word, std::uint32_t sequence, std::uint32_t step) {
  const std::uint32_t ahead = static_cast<std::uint32_t>(word >> 32) - sequence;
  const auto at = static_cast<std::uint32_t>(word);
  return (ahead == 1 && at > 0) || (ahead == 0 && at >= step);
}

// What `word` says of the call of a peer that enters operation `sequence`: `expected`, or another
// one, or nothing yet. Zeroed words look like entries once numbers went round, but hold no digest.
enum class Entry : std::uint32_t { absent, agrees, differs };
GANTRY_HD constexpr Entry entry_in(std::uint64_t word, std::uint32_t sequence,
                                   std::uint32_t expected) {
  if (static_cast<std::uint32_t>(word >> 32) != sequence) return Entry::absent;
  const auto digest = static_cast<std::uint32_t>(word);
  if (digest == expected) return Entry::agrees;
  return digest == 0 ? Entry::absent : Entry::differs;
}

// Note [Telling the host]
// A word in host memory costs a microsecond at the end of a kernel, so an operation that never
// waits long says nothing. One that does says that it began, and in the end that it ended: whoever
// looks for a rank that does not come finds all others in there. Each block tells for itself, again
// and again, because another one that told may have ended, and said so, in the meantime.
template <class Block>
GANTRY_HD void tell_host(Block& block, const Group& group, std::uint64_t call,
                         std::uint32_t sequence) {
  block.set_own(&pad_of(group, group.rank).told[block.index()], sequence);
  block.fence();
  block.publish(&group.words->started, run_word(call, sequence));
  block.publish(&group.words->finished, run_word(call - 1, sequence));
}

// Functions that are not inlined get a copy of their Block: a reference would keep it out of
// registers. So their callers note that the host was told.

// Note [Fault words]
// Kernels of three lanes may fail at one time, and many threads of each, but one set of words tells
// of it: the call, its peer, and the fault, which is also their lock. A thread that changes it from
// 0 to kFaultClaimed writes the other two, and then the fault. The others leave it: the first fault
// stays until the host has taken it. The host changes a fault to kFaultClaimed, too, while it takes
// the other two words, and then to 0. Only threads of one device compete for 0, and while it stands
// there the host leaves the words alone: so the exchange need not be atomic for the host, which
// exchanges over PCIe may not be.
template <class Block>
GANTRY_HD void report(Block& block, DeviceWords* words, Outcome outcome, int peer,
                      std::uint64_t call, std::uint32_t sequence) {
  if (!block.claim(&words->fault)) return;
  const auto fault = outcome == Outcome::mismatch   ? OperationFault::mismatch
                     : outcome == Outcome::overlaps ? OperationFault::overlap
                                                    : OperationFault::aborted;
  block.publish(&words->fault_peer, static_cast<std::int32_t>(peer));
  block.publish(&words->fault_call, call);
  block.publish_last(&words->fault, fault_word(fault, sequence));
}

// Reports why an operation has no result; other threads may report the same.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void fail(Block block, const Group& group, Outcome outcome, int peer,
                                    std::uint64_t call, std::uint32_t sequence) {
  if (outcome == Outcome::stopped) return;
  tell_host(block, group, call, sequence);
  report(block, group.words, outcome, peer, call, sequence);
}

// After a long wait: whether it makes sense to go on.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome look(Block block, const Group& group, std::uint64_t call,
                                       std::uint32_t sequence) {
  tell_host(block, group, call, sequence);
  if (block.is_stopped()) return Outcome::stopped;
  return block.is_aborted(group.words) ? Outcome::aborted : Outcome::done;
}

// The same, and what block 0 of `peer` says about operation `sequence`; mismatch if it entered
// another call.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome look_at(Block block, const Group& group, int peer,
                                          std::uint64_t call, std::uint32_t sequence,
                                          std::uint32_t expected) {
  const std::uint64_t word = block.acquire(&pad_of(group, group.rank).entry[sequence & 1][0][peer]);
  const Outcome outcome = look(block, group, call, sequence);
  return entry_in(word, sequence, expected) == Entry::differs ? Outcome::mismatch : outcome;
}

// The same as look(), for who waits for steps of `peer`; mismatch if it takes back its entry.
template <class Block>
GANTRY_NOINLINE GANTRY_HD Outcome look_for_steps(Block block, const Group& group, int peer,
                                                 std::uint64_t call, std::uint32_t sequence) {
  const std::uint64_t word =
      block.acquire(&pad_of(group, group.rank).entry[sequence & 1][block.index()][peer]);
  const Outcome outcome = look(block, group, call, sequence);
  return word == signal(sequence, kWithdrawn) ? Outcome::mismatch : outcome;
}

// Waits until block `theirs` of `peer` entered operation `sequence` with the digest `expected`.
template <class Block>
GANTRY_HD Outcome await_entry(Block& block, const Group& group, int peer, std::uint64_t call,
                              int theirs, std::uint32_t sequence, std::uint32_t expected) {
  const std::uint64_t* word = &pad_of(group, group.rank).entry[sequence & 1][theirs][peer];
  GANTRY_ROLLED
  for (std::uint32_t spins = 1;; ++spins) {
    const Entry entry = entry_in(block.acquire(word), sequence, expected);
    if (entry == Entry::agrees) return Outcome::done;
    if (entry == Entry::differs) return Outcome::mismatch;
    if (spins % kPollsPerLook == 0) {
      block.note_told();
      const Outcome outcome = look_at(block, group, peer, call, sequence, expected);
      if (outcome != Outcome::done) return outcome;
    }
    block.pause(spins);
  }
}

// Waits until `word`, which `peer` writes, has come to step `step` of operation `sequence`.
template <class Block>
GANTRY_HD Outcome await_step(Block& block, const Group& group, int peer, const std::uint64_t* word,
                             std::uint64_t call, std::uint32_t sequence, std::uint32_t step) {
  GANTRY_ROLLED
  for (std::uint32_t spins = 1;; ++spins) {
    if (has_come(block.acquire(word), sequence, step)) return Outcome::done;
    if (spins % kPollsPerLook == 0) {
      block.note_told();
      const Outcome outcome = look_for_steps(block, group, peer, call, sequence);
      if (outcome != Outcome::done) return outcome;
    }
    block.pause(spins);
  }
}

// Note [Operations that overlap]
// Kernels of one rank's operations run one after the other: calls are ordered by their lane, and
// calls of one graph. The order of a graph's replay and other work is that of its launch, which the
// library does not see. Two operations at one time would take one number, and with it each other's
// data. So once a group has calls in graphs, a block counts itself in as it begins, by an exchange
// in this rank's memory: if the operation before it has not ended there, it reports that, and
// touches nothing. The host then breaks the group, which ends what other blocks began.

// The number of the operation that is under way, or of the next one.
template <class Block>
GANTRY_HD std::uint32_t current(Block& block, const Group& group) {
  return block.own(&pad_of(group, group.rank).ended[block.index()]) + 1;
}

inline constexpr std::uint64_t kOverlaps = std::uint64_t{1} << 32;

// Reports that another operation of the rank is under way.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void report_overlap(Block block, const Group& group, std::uint64_t call,
                                              std::uint32_t sequence) {
  if (!block.is_leader()) return;
  report(block, group.words, Outcome::overlaps, group.rank, call, sequence);
}

// Begins this block's share; `sequence` is the operation's number. False, with the fault reported,
// if another operation of the rank is under way.
template <class Block>
GANTRY_HD bool begin(Block& block, const Group& group, std::uint64_t call,
                     std::uint32_t& sequence) {
  sequence = current(block, group);
  std::uint32_t* const begun = &pad_of(group, group.rank).begun[block.index()];
  if (!group.has_graphs) {
    if (block.is_leader()) block.set_own(begun, sequence);
    return true;
  }
  // In line, because a function of its own would be fetched first. The leader's number is that of
  // all: they may have read theirs before and after the end of another operation.
  std::uint64_t number = 0;
  if (block.is_leader()) {
    number = block.count_own(begun) + 1;
    if (number != sequence) number |= kOverlaps;
  }
  number = block.from_leader(number);
  sequence = static_cast<std::uint32_t>(number);
  if (number < kOverlaps) return true;
  report_overlap(block, group, call, sequence);
  return false;
}

// Ends this block's share. Every block comes here, whatever happened, so that ranks stay in step
// after a mismatch. Blocks that had no share are counted by those that did. Of the blocks that told
// the host of the beginning the last one tells it of the end: of two that end at the same time at
// least one sees the other's number.
template <class Block>
GANTRY_HD void end(Block& block, const Group& group, std::uint64_t call, std::uint32_t sequence) {
  const bool told = block.any(block.has_told());
  SignalPad& pad = pad_of(group, group.rank);
  const int rounds = (kMaxBlocks - 1 - block.index()) / block.count() + 1;
  block.for_each(rounds, [&](std::int64_t i) {
    const std::int64_t at = block.index() + i * block.count();
    if (i > 0) block.set_own(&pad.begun[at], sequence);
    block.set_own(&pad.ended[at], sequence);
  });
  if (!told || !block.is_leader()) return;
  block.fence();
  GANTRY_ROLLED
  for (int other = 0; other < block.count(); ++other) {
    if (block.own(&pad.told[other]) == sequence && block.own(&pad.ended[other]) != sequence) return;
  }
  block.publish(&group.words->finished, run_word(call, sequence));
}

// Says to all peers what this block's rank calls: digest_for(peer) to each.
template <class Block, class DigestFor>
GANTRY_HD void say_call(Block& block, const Group& group, int index, std::uint32_t sequence,
                        const DigestFor& digest_for) {
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    block.release(&pad_of(group, peer).entry[sequence & 1][index][group.rank],
                  signal(sequence, digest_for(peer)));
  });
}

// Says to all peers that `step` steps of this block have come to what `words` tells of.
template <class Block>
GANTRY_HD void say_steps(Block& block, const Group& group, StepWords SignalPad::*words, int index,
                         std::uint32_t sequence, std::int64_t steps) {
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    block.release(&(pad_of(group, peer).*words)[index][group.rank],
                  signal(sequence, static_cast<std::uint32_t>(steps)));
  });
}

// Waits for the entries of block `theirs` of all peers; false, with the fault reported, if the
// operation cannot go on.
template <class Block, class Expected>
GANTRY_HD bool await_entries(Block& block, const Group& group, std::uint64_t call, int theirs,
                             std::uint32_t sequence, const Expected& expected) {
  bool failed = false;
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    const Outcome outcome = await_entry(block, group, peer, call, theirs, sequence, expected(peer));
    if (outcome == Outcome::done) return;
    block.note_told();
    fail(block, group, outcome, peer, call, sequence);
    failed = true;
  });
  return !block.any(failed);
}

// Waits until row `words` has come to `step` for all peers; false, with the fault reported, if the
// operation cannot go on.
template <class Block>
GANTRY_HD bool await_steps(Block& block, const Group& group, const std::uint64_t* words,
                           std::uint64_t call, std::uint32_t sequence, std::uint32_t step) {
  bool failed = false;
  block.for_each_rank(group.size, [&](int peer) {
    if (peer == group.rank) return;
    const Outcome outcome = await_step(block, group, peer, &words[peer], call, sequence, step);
    if (outcome == Outcome::done) return;
    block.note_told();
    fail(block, group, outcome, peer, call, sequence);
    failed = true;
  });
  return !block.any(failed);
}

// What a Block folds or copies is of elements T; of Moved if elements are not combined.
struct Moved {};
template <class T>
inline constexpr bool kCombines = !std::is_same_v<T, Moved>;

// Bytes that are copied; any alignment, any rank's workspace.
struct Run {
  std::byte* to;
  const std::byte* from;
  std::int64_t bytes;
};

// `count` arrays, at least `Least`, one after the other; aligned to 16 bytes.
template <int Least>
struct Sources {
  static constexpr int kLeast = Least;
  const std::byte* first;
  std::int64_t stride;
  int count;

  GANTRY_HD const std::byte* at(int i) const { return first + i * stride; }
};

// Two arrays, the second one of which comes last; aligned likewise.
struct Pair {
  const std::byte* first;
  const std::byte* second;
  static constexpr int count = 2;

  GANTRY_HD const std::byte* at(int i) const { return i == 0 ? first : second; }
};

// `count` arrays, each `offset` from its own base; aligned likewise.
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
