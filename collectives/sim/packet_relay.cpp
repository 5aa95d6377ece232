#include "collectives/algorithms/packet_relay.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void packet_relay(const PacketRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::relay_packets<T, 8>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
