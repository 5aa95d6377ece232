// The kernels of operations on registered memory.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Phases]
// An operation on registered memory needs no staging: ranks read each other's inputs where they
// are and write results where they belong. What is left for signals is to say that all tensors are
// ready, and that all ranks are done with the others'. One kernel does it all, or two, the phases
// of one operation, which begins with the first and ends with the last under one number: between
// them copy engines send what is only moved. They send rather than fetch: where copies are not
// batched, as in graphs, one that follows another costs 2.5 us then instead of 7 to 12 (H200).
//
// If ranks call different things the first phase ends the operation, and the other one, which is
// enqueued already, finds that it is not open. Copies run all the same, and write where the results
// of their call would be on all ranks: that is undefined then, until all ranks' devices are done.
// What kernels make stays as it is.

// A block's part of `bytes`, in words of 16.
GANTRY_HD inline std::int64_t slice_of(std::int64_t bytes, int blocks) {
  return (bytes + 16 * std::int64_t{blocks} - 1) / (16 * std::int64_t{blocks}) * 16;
}

// Whether an operation that earlier phases began goes on here. What they told the host of it, this
// one takes back.
template <class Block>
GANTRY_HD bool is_open(Block& block, const Group& group, std::uint32_t sequence) {
  SignalPad& pad = pad_of(group, group.rank);
  if (block.own(&pad.opened) != sequence) return false;
  block.for_each(kMaxBlocks, [&](std::int64_t i) {
    if (block.own(&pad.told[i]) == sequence) block.note_told();
  });
  return true;
}

template <class T, class Block>
GANTRY_HD void phase(Block& block, const Phase& plan) {
  const Group& group = plan.group;
  const int index = block.index();
  std::uint32_t sequence = current(block, group);
  if (plan.begins) {
    if (!begin(block, group, plan.call, sequence)) return;
    say_call(block, group, index, sequence, [&](int) { return plan.digest; });
    if (!await_entries(block, group, plan.call, index, sequence,
                       [&](int) { return plan.digest; })) {
      return end(block, group, plan.call, sequence);
    }
  } else if (!is_open(block, group, sequence)) {
    return;
  }
  if constexpr (kCombines<T>) {
    const std::int64_t slice = slice_of(plan.bytes, block.count());
    const std::int64_t bytes = clipped(plan.bytes, index * slice, slice);
    block.template fold<T>(plan.how, {plan.outs, index * slice, plan.targets}, bytes,
                           Arrays{plan.ins, index * slice, plan.sources});
  }
  if (plan.step > 0) {
    block.sync();
    say_steps(block, group, &SignalPad::staged, index, sequence, plan.step);
    await_steps(block, group, pad_of(group, group.rank).staged[index], plan.call, sequence,
                plan.step);
  }
  if (plan.ends) return end(block, group, plan.call, sequence);
  if (index == 0 && block.is_leader()) block.set_own(&pad_of(group, group.rank).opened, sequence);
}

}  // namespace gantry::protocol
