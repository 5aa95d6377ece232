#include "kernels/impl/ternary.inl"
#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {

void ternary(TernaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
             const Operand& c, const Scalar& value) {
  run_ternary(Loop{}, op, out, a, b, c, value);
}

void where(const TensorRef& out, const TensorRef& condition, const Operand& a, const Operand& b) {
  run_where(Loop{}, out, condition, a, b);
}

}  // namespace gantry::kernels::host
