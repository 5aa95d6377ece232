#include "collectives/algorithms/packets.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void packets(const PacketExchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::exchange_packets<T, 8>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
