#include "kernels/impl/compare.inl"
#include "kernels/sim/elementwise/elementwise.hpp"
#include "kernels/sim/launch.hpp"

namespace gantry::kernels::host {

void compare(CompareOp op, const TensorRef& out, const Operand& a, const Operand& b,
             DType compute) {
  run_compare(Loop{}, op, out, a, b, compute);
}

}  // namespace gantry::kernels::host
