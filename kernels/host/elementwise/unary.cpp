#include "kernels/impl/unary.inl"
#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {

void unary(UnaryOp op, const TensorRef& out, const TensorRef& in) {
  run_unary(Loop{}, op, out, in);
}

void predicate(PredicateOp op, const TensorRef& out, const TensorRef& in) {
  run_predicate(Loop{}, op, out, in);
}

}  // namespace gantry::kernels::host
