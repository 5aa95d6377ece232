#include "kernels/impl/moments.inl"

#include "kernels/host/reductions/state_families.hpp"
#include "kernels/host/reductions/states.hpp"

namespace gantry::kernels::host {

void reduce_moments(const ReducePlan& plan) { reduce_states<MomentsReducer>(plan); }

}  // namespace gantry::kernels::host
