#include "collectives/algorithms/chain.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void chain(const Chain& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::chain<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
