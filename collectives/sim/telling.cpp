#include "collectives/algorithms/telling.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void tell(const Telling& plan) {
  SimBlock block(0, 1);
  protocol::tell(block, plan);
}

}  // namespace gantry::protocol::sim
