#include "collectives/algorithms/relay.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void relay(const Relay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::relay<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
