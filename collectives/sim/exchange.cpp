#include "collectives/algorithms/exchange.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void exchange(const Exchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::exchange<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
