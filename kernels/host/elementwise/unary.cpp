#include "kernels/impl/unary.inl"

#include <limits>

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

// The magnitude of a 16-bit float, by its bits.
struct Magnitude {
  std::uint16_t infinity;
  std::uint16_t nan;  // Note [Canonical NaN]
  std::uint16_t operator()(std::uint16_t word) const {
    const auto magnitude = static_cast<std::uint16_t>(word & 0x7fff);
    return magnitude > infinity ? nan : magnitude;
  }
};

}  // namespace

void unary_loop(UnaryOp op, const TensorRef& out, const TensorRef& in) {
  run_unary(Loop{}, op, out, in);
}

void unary(UnaryOp op, const TensorRef& out, const TensorRef& in) {
  if (op == UnaryOp::abs && (in.dtype == DType::f16 || in.dtype == DType::bf16)) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    const Magnitude magnitude = in.dtype == DType::f16 ? Magnitude{0x7c00, float16(kNaN).bits}
                                                       : Magnitude{0x7f80, bfloat16(kNaN).bits};
    return Loop{}.run<std::uint16_t>("unary", magnitude, out, tensor_input<std::uint16_t>(in));
  }
  const std::uint16_t* const table = half_tables().find(op, in.dtype, out.numel());
  if (table == nullptr) return unary_loop(op, out, in);
  Loop{}.run<std::uint16_t>("unary", LookUp{table}, out, tensor_input<std::uint16_t>(in));
}

void predicate(PredicateOp op, const TensorRef& out, const TensorRef& in) {
  run_predicate(Loop{}, op, out, in);
}

}  // namespace gantry::kernels::host
