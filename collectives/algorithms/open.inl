// Large operations on arrays that all ranks can access.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Open arrays]
// An operation needs no staging if every rank can access the arrays of all others. Arrays of ranks
// of one process have one address for all of them. Of registered arrays, and of memory that other
// processes have mapped (ipc/mirrors.hpp), each rank knows where the others have it. Only the owner
// of an array knows whether they can access it, so the ranks decide in band. A rank whose arrays
// are open writes their addresses to every peer and sets kOpens in its entry. After the entry
// barrier every rank has seen the entries of all ranks, so all ranks decide alike: if all arrays
// are open, ranks read inputs and write outputs in place, else the data goes through staging. Bits
// are the same either way. The host waits for nothing.
//
// A rank reads and writes a peer's arrays between its entry and its "full" signal, and the peer
// leaves after it has seen that signal. The peer's stream therefore orders these accesses.
//
// A rank that is aborted leaves early. Its arrays may then be freed, but a peer that has passed the
// entry barrier still accesses them. All abort words of a group are set together, and each rank
// looks at its own once while it enters. So no rank begins to access arrays later, and those that
// have begun complete within milliseconds, since they wait for nobody. The aborted rank gives them
// that time. One block looks, for all: reads of one word of the host's memory by many blocks take
// turns, a microsecond each.
//
// Where a rank only sends or only receives slices, the receivers fetch them: loads reach the rate
// of a link with fewer blocks than stores. Where each rank does both, ranks store slices, because
// requests of loads compete with data in the other direction: 330 GB/s instead of 355 (H200).

// Whether the operation was on open arrays, must end without a result, or must use staging.
enum class OpenOutcome : std::uint32_t { done, failed, closed };

// Gives peers that may access this rank's arrays the time to complete.
template <class Block>
GANTRY_NOINLINE GANTRY_HD void await_accesses(Block block, const Group& group,
                                              std::uint32_t epoch) {
  const SignalPad& pad = pad_of(group, group.rank);
  block.for_each_rank(group.size, [&](int p) {
    if (p == group.rank) return;
    const std::uint64_t* word = &pad.full[block.index()][p];
    for (std::uint32_t spins = 1;
         spins < Block::kSettlingPolls && !has_reached(block.acquire(word), epoch, 1); ++spins) {
      block.pause(spins);
    }
  });
}

// Writes the addresses of this rank's arrays to all ranks, and enters.
template <class Block, class Plan>
GANTRY_HD void enter_open(Block& block, const Plan& plan, std::uint32_t epoch) {
  const Group& group = plan.group;
  const int index = block.index();
  block.for_each_rank(group.size, [&](int p) {
    SignalPad& pad = pad_of(group, p);
    OpenArrays& arrays = pad.open_arrays[epoch & 1][index];
    if (p == group.rank) {
      block.set_own(&arrays.ins[p], const_cast<std::byte*>(plan.in));
      block.set_own(&arrays.outs[p], plan.out);
      return;
    }
    if (plan.open.is_open) {
      block.post(&arrays.ins[group.rank], plan.open.at_peers.ins[p]);
      block.post(&arrays.outs[group.rank], plan.open.at_peers.outs[p]);
    }
    block.release(&pad.entry_barrier[epoch & 1][index][group.rank],
                  signal_word(epoch, plan.digest | (plan.open.is_open ? kOpens : 0)));
  });
}

// True if every rank has opened its arrays, this one included; the same for all threads. After
// wait_entries().
template <class Block>
GANTRY_HD bool are_all_open(Block& block, const Group& group, bool is_open, std::uint32_t epoch) {
  bool is_closed = !is_open;
  block.for_each_rank(group.size, [&](int p) {
    if (p == group.rank) return;
    const std::uint64_t entry =
        block.own(&pad_of(group, group.rank).entry_barrier[epoch & 1][block.index()][p]);
    is_closed = is_closed || (entry & kOpens) == 0;
  });
  return !block.any(is_closed);
}

// Reduces this rank's slice of the inputs to the outputs, or moves slices between them.
template <class T, int Shots, class Block, class Plan>
GANTRY_HD void access_open_arrays(Block& block, const Plan& plan, const OpenArrays& arrays) {
  const Group& group = plan.group;
  const OpenPlan& open = plan.open;
  const std::int64_t own = kReduces<T> || Shots == 2 ? open.bytes : plan.bytes;
  const std::int64_t blocks = 16 * std::int64_t{block.count()};
  const std::int64_t part = (own + blocks - 1) / blocks * 16;
  const std::int64_t begin = block.index() * part;
  const std::int64_t bytes = clipped(own, begin, part);
  if constexpr (kReduces<T>) {
    block.template reduce<T>(plan.how, {arrays.outs, open.to + begin, open.receivers}, bytes,
                             Arrays{arrays.ins, open.from + begin, group.size});
  } else if constexpr (Shots == 2) {
    // A word that is read once goes to all receivers. The sum of one array is a copy.
    block.template reduce<std::int64_t>(ReduceBy{}, {arrays.outs, open.to + begin, open.receivers},
                                        bytes,
                                        Arrays{&arrays.ins[open.root], open.from + begin, 1});
  } else {
    block.copy(group.size, part, [&](int turn) {
      // Ranks begin with different peers, so that no link serves all at once.
      const int p = (group.rank + turn) % group.size;
      const PeerSlices slices = plan.slices(p);
      const ByteSlice slice = open.stores ? slices.send : slices.receive;
      std::byte* to =
          open.stores ? arrays.outs[p] + group.rank * plan.receive_stride : plan.out + slice.at;
      const std::byte* from =
          open.stores ? plan.in + slice.at : arrays.ins[p] + group.rank * plan.send_stride;
      const std::int64_t size = to == from ? 0 : clipped(slice.bytes, begin, part);
      return Run{to + begin, from + begin, size};
    });
  }
}

// Looks at the rank's abort word, for all blocks of the rank.
template <class Block>
GANTRY_HD void give_clearance(Block& block, const Group& group, std::uint32_t epoch) {
  if (block.index() != 0 || !block.is_leader()) return;
  const std::uint32_t found = block.is_aborted(group.words) ? 2 : 1;
  block.set_own(&pad_of(group, group.rank).clearance, signal_word(epoch, found));
}
// True if the abort word was set. For the leader, which waits for block 0: that runs first.
template <class Block>
GANTRY_HD bool lacks_clearance(Block& block, const Group& group, std::uint32_t epoch) {
  const std::uint64_t* word = &pad_of(group, group.rank).clearance;
  std::uint64_t found = block.own(word);
  for (std::uint32_t spins = 1; found >> 32 != epoch || static_cast<std::uint32_t>(found) == 0;
       ++spins) {
    block.pause(spins);
    found = block.own(word);
  }
  return static_cast<std::uint32_t>(found) != 1;
}

// Enters, and runs this block's part of the operation if all arrays are open.
template <class T, int Shots, class Block, class Plan>
GANTRY_HD OpenOutcome run_on_open_arrays(Block& block, const Plan& plan, std::uint32_t epoch) {
  const Group& group = plan.group;
  const int index = block.index();
  give_clearance(block, group, epoch);
  enter_open(block, plan, epoch);
  // The leader finds it while other threads wait for the entries.
  const bool is_late = block.is_leader() && lacks_clearance(block, group, epoch);
  const bool entered =
      wait_entries(block, group, plan.call, index, epoch, [&](int) { return plan.digest; });
  const bool is_clear = !block.any(is_late);
  if (entered && is_late) fail(block, group, Outcome::aborted, group.rank, plan.call, epoch);
  if (!entered || !is_clear) {
    if (plan.open.is_open && block.is_aborted(group.words)) await_accesses(block, group, epoch);
    return OpenOutcome::failed;
  }
  if (!are_all_open(block, group, plan.open.is_open, epoch)) return OpenOutcome::closed;
  access_open_arrays<T, Shots>(block, plan,
                               pad_of(group, group.rank).open_arrays[epoch & 1][index]);
  block.sync();
  signal_chunks(block, group, &SignalPad::full, index, epoch, 1);
  const bool complete =
      wait_chunks(block, group, pad_of(group, group.rank).full[index], plan.call, epoch, 1);
  if (complete) return OpenOutcome::done;
  await_accesses(block, group, epoch);
  return OpenOutcome::failed;
}

}  // namespace gantry::protocol
