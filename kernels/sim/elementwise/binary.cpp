#include "kernels/impl/binary.inl"
#include "kernels/sim/elementwise/elementwise.hpp"
#include "kernels/sim/launch.hpp"

namespace gantry::kernels::host {

void binary(BinaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
            const Scalar& alpha) {
  run_binary(Loop{}, op, out, a, b, alpha);
}

}  // namespace gantry::kernels::host
