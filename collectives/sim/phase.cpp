#include "collectives/algorithms/phase.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void phase(const Phase& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::phase<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
