#include "collectives/algorithms/one_shot.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void one_shot(const OneShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::one_shot<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
