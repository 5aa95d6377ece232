// The kernels of zero-copy operations, which are on registered memory.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Zero-copy]
// An operation on registered memory needs no staging. Ranks read each other's inputs and write
// results to their destination. Signals only show that all tensors are ready, and that all ranks
// have finished with the other ranks' tensors. An operation is one kernel, or two kernels of one
// epoch with copies between them: copy engines send data that needs no arithmetic. Copies write to
// the peer, because writes are faster than reads. Without batches, as in graphs, each further copy
// costs 2.5 us instead of 7 to 12 (H200).
//
// After a mismatch the first kernel ends the operation. The second kernel, which is enqueued
// already, then finds that the operation is not open. The copies still run and write to the result
// of their call on all ranks. That memory is undefined until the devices of all ranks are done.
// Kernels write nothing after a mismatch.

// Bytes of one block's slice of `bytes`, a multiple of 16.
GANTRY_HD inline std::int64_t block_slice(std::int64_t bytes, int blocks) {
  return (bytes + 16 * std::int64_t{blocks} - 1) / (16 * std::int64_t{blocks}) * 16;
}

// True if an earlier kernel began the operation of this one. Takes over the reports of the earlier
// kernel, whose end this kernel reports.
template <class Block>
GANTRY_HD bool is_open(Block& block, const Group& group, std::uint32_t epoch) {
  SignalPad& pad = pad_of(group, group.rank);
  if (block.own(&pad.opened) != epoch) return false;
  block.for_each(kMaxBlocks, [&](std::int64_t i) {
    if (block.own(&pad.reported[i]) == epoch) block.note_reported();
  });
  return true;
}

template <class T, class Block>
GANTRY_HD void zero_copy(Block& block, const ZeroCopy& plan) {
  const Group& group = plan.group;
  const int index = block.index();
  std::uint32_t epoch = current(block, group);
  if (plan.begins) {
    Begun begun;
    if (!begin(block, group, plan.call, begun)) return;
    epoch = begun.epoch;
    signal_entries(block, group, index, epoch, [&](int) { return plan.digest; });
    if (!wait_entries(block, group, plan.call, index, epoch, [&](int) { return plan.digest; })) {
      return end(block, group, plan.call, epoch);
    }
  } else if (!is_open(block, group, epoch)) {
    return;
  }
  if constexpr (kReduces<T>) {
    const std::int64_t slice = block_slice(plan.bytes, block.count());
    const std::int64_t bytes = clipped(plan.bytes, index * slice, slice);
    block.template reduce<T>(plan.how, {plan.outs, index * slice, plan.targets}, bytes,
                             Arrays{plan.ins, index * slice, plan.inputs});
  }
  if (plan.barrier > 0) {
    block.sync();
    signal_chunks(block, group, &SignalPad::full, index, epoch, plan.barrier);
    wait_chunks(block, group, pad_of(group, group.rank).full[index], plan.call, epoch,
                plan.barrier);
  }
  if (plan.ends) return end(block, group, plan.call, epoch);
  if (index == 0 && block.is_leader()) block.set_own(&pad_of(group, group.rank).opened, epoch);
}

}  // namespace gantry::protocol
