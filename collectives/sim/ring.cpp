#include "collectives/algorithms/ring.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void ring(const Ring& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { protocol::ring<T>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
