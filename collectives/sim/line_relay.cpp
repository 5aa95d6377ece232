#include "collectives/algorithms/line_relay.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void line_relay(const LineRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { relay_lines<T, 8>(block, plan); });
  });
}

}  // namespace gantry::protocol::sim
