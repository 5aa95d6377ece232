#include "collectives/algorithms/wire_exchange.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

namespace {

template <template <class> class Wire>
void exchange_over_wire(const WireExchange& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { exchange_over<T, Wire, 8>(block, plan); });
  });
}

}  // namespace

void packets(const WireExchange& plan, int blocks) { exchange_over_wire<Packets>(plan, blocks); }
void lines(const WireExchange& plan, int blocks) { exchange_over_wire<Lines>(plan, blocks); }

}  // namespace gantry::protocol::sim
