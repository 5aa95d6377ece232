#include "kernels/impl/log_sum_exp.inl"

#include "kernels/host/reductions/state_families.hpp"
#include "kernels/host/reductions/states.hpp"

namespace gantry::kernels::host {

void reduce_log_sum_exp(const ReducePlan& plan) { reduce_states<LogSumExpReducer>(plan); }

}  // namespace gantry::kernels::host
