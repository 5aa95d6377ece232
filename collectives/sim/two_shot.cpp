#include "collectives/algorithms/two_shot.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void two_shot(const TwoShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::two_shot<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
