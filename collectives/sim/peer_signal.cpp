#include "collectives/algorithms/peer_signal.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void peer_signal(const PeerSignal& plan) {
  SimBlock block(0, 1);
  protocol::pass_signal(block, plan);
}

}  // namespace gantry::protocol::sim
