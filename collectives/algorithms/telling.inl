// What tells the host of a call whose own kernels do not.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// As Note [Telling the host], but of every call, and by one thread, before it and behind it.
template <class Block>
GANTRY_HD void tell(Block& block, const Telling& plan) {
  const std::uint64_t run = block.own(plan.runs) + (plan.begins ? 1 : 0);
  if (plan.begins) {
    block.set_own(plan.runs, run);
    block.publish(plan.started, run_word(plan.call, run));
  }
  block.publish(plan.finished, run_word(plan.begins ? plan.call - 1 : plan.call, run));
}

}  // namespace gantry::protocol
