// Progress reports of calls whose own kernels make none.
#pragma once

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// As Note [Progress reports], but for every call, by one thread, before and after the call.
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
