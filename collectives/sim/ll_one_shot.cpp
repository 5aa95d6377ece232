#include "collectives/algorithms/ll_one_shot.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

namespace {

template <template <class> class Proto>
void ll_one_shot_over(const LlOneShot& plan, int blocks) {
  with_element(plan.how, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_block(blocks, [&](SimBlock& block) { ll_one_shot<T, Proto, 8>(block, plan); });
  });
}

}  // namespace

void ll(const LlOneShot& plan, int blocks) { ll_one_shot_over<Ll>(plan, blocks); }
void ll128(const LlOneShot& plan, int blocks) { ll_one_shot_over<Ll128>(plan, blocks); }

}  // namespace gantry::protocol::sim
