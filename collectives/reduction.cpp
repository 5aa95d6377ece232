#include "collectives/reduction.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

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

Reduction reduction_for(ReduceOp op, DType dtype, int count, std::string_view where) {
  const auto require = [&](bool allowed, std::string_view wanted) {
    if (!allowed) {
      throw DTypeError(
          fmt::format("{}: expected {} for {}, but got {}", where, wanted, name(op), name(dtype)));
    }
  };
  switch (op) {
    case ReduceOp::sum:
      return {kernels::NaryOp::sum, 1};
    case ReduceOp::prod:
      return {kernels::NaryOp::prod, 1};
    case ReduceOp::min:
      return {kernels::NaryOp::min, 1};
    case ReduceOp::max:
      return {kernels::NaryOp::max, 1};
    case ReduceOp::avg:
      require(is_floating_point(dtype), "a floating dtype");
      return {kernels::NaryOp::sum, static_cast<double>(count)};
    case ReduceOp::band:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::band, 1};
    case ReduceOp::bor:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::bor, 1};
    case ReduceOp::bxor:
      require(!is_floating_point(dtype), "an integer dtype or bool");
      return {kernels::NaryOp::bxor, 1};
  }
  __builtin_unreachable();
}

}  // namespace gantry
