#include "collectives/algorithms/zero_copy.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void zero_copy(const ZeroCopy& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::zero_copy<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
