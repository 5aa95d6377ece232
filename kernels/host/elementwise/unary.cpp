#include "kernels/impl/unary.inl"

#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/host/elementwise/half_tables.hpp"
#include "kernels/host/elementwise/unary_loop.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {
namespace {

struct LookUp {
  static constexpr bool kSlow = true;  // no vector code
  const std::uint16_t* table;
  std::uint16_t operator()(std::int32_t word) const { return table[word]; }
};

}  // namespace

void unary_loop(UnaryOp op, const TensorRef& out, const TensorRef& in) {
  run_unary(Loop{}, op, out, in);
}

void unary(UnaryOp op, const TensorRef& out, const TensorRef& in) {
  const std::uint16_t* const table = half_tables().find(op, in.dtype, out.numel());
  if (table == nullptr) return unary_loop(op, out, in);
  Loop{}.run<std::uint16_t>("unary", LookUp{table}, out, tensor_input<std::uint16_t>(in));
}

void predicate(PredicateOp op, const TensorRef& out, const TensorRef& in) {
  run_predicate(Loop{}, op, out, in);
}

}  // namespace gantry::kernels::host
