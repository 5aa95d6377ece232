// Signals between two ranks through a word of a signal pad.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// By one thread. The sender alone writes 1, the receiver alone writes 0, so no exchange is needed.
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

}  // namespace gantry::protocol
