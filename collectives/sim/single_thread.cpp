// Kernels of one thread.
#include "collectives/algorithms/peer_signal.inl"
#include "collectives/algorithms/progress_report.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void peer_signal(const PeerSignal& plan) {
  SimBlock block(0, 1);
  pass_signal(block, plan);
}
void report_progress(const ProgressReport& plan) {
  SimBlock block(0, 1);
  protocol::report_progress(block, plan);
}

}  // namespace gantry::protocol::sim
