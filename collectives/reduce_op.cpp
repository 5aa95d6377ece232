#include <gantry/collectives/reduce_op.hpp>

namespace gantry {

std::string_view name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
  }
  __builtin_unreachable();
}

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << name(op); }

}  // namespace gantry
