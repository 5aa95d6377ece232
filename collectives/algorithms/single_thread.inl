// The kernels of one thread.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// A signal between two ranks through a word of a signal pad. The sender alone writes 1, the
// receiver alone writes 0, so no exchange is needed.
template <class Block>
GANTRY_HD void pass_signal(Block& block, const PeerSignal& plan) {
  for (std::uint32_t spins = 1; block.acquire(plan.word) != plan.awaited; ++spins) {
    if (spins % kPollsPerCheck == 0 && block.is_aborted(plan.words)) {
      return report_fault(block, plan.words, Outcome::aborted, plan.peer, plan.call, plan.sequence);
    }
    block.pause(spins);
  }
  block.release(plan.word, 1 - plan.awaited);
}

template <class Block>
GANTRY_HD void report_abort(Block& block, const AbortReport& plan) {
  constexpr int kUnknownPeer = -1;
  constexpr std::uint32_t kSequence = 1U << 27;  // of no operation
  if (!block.is_aborted(plan.words)) return;
  report_fault(block, plan.words, Outcome::aborted, kUnknownPeer, plan.call, kSequence);
}

// As Note [Progress reports], but before and after a call whose own kernels report none.
template <class Block>
GANTRY_HD void report_progress(Block& block, const ProgressReport& plan) {
  const std::uint64_t run = block.own(plan.runs) + (plan.begins ? 1 : 0);
  if (plan.begins) {
    block.set_own(plan.runs, run);
    block.publish(plan.started, run_word(plan.call, run));
  }
  block.publish(plan.finished, run_word(plan.begins ? plan.call - 1 : plan.call, run));
}

}  // namespace gantry::protocol
