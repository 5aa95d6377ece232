#include "collectives/algorithms/progress_report.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void report_progress(const ProgressReport& plan) {
  SimBlock block(0, 1);
  protocol::report_progress(block, plan);
}

}  // namespace gantry::protocol::sim
