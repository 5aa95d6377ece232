#include "collectives/algorithms/ll128_two_shot.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void ll128_two_shot(const Ll128TwoShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { ll128_two_shot<T, 8>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
