#include "kernels/impl/special.inl"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {

void special(SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters) {
  run_special(Loop{}, op, out, in, parameters);
}

void special(SpecialBinaryOp op, const TensorRef& out, const Operand& a, const Operand& b) {
  run_special(Loop{}, op, out, a, b);
}

}  // namespace gantry::kernels::host
