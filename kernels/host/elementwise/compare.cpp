#include "kernels/impl/compare.inl"
#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {

void compare(CompareOp op, const TensorRef& out, const Operand& a, const Operand& b,
             DType compute) {
  run_compare(Loop{}, op, out, a, b, compute);
}

}  // namespace gantry::kernels::host
