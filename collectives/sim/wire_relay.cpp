#include "collectives/algorithms/wire_relay.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

namespace {

template <template <class> class Wire>
void relay_over_wire(const WireRelay& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { relay_over<T, Wire, 8>(block, plan); });
  });
}

}  // namespace

void packet_relay(const WireRelay& plan, int blocks) { relay_over_wire<Packets>(plan, blocks); }
void line_relay(const WireRelay& plan, int blocks) { relay_over_wire<Lines>(plan, blocks); }

}  // namespace gantry::protocol::sim
