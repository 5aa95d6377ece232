#include "kernels/impl/ternary.inl"
#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels::host {
namespace {

// Clamp between numbers: one comparison each, in the form of the processor's instructions. NaN
// stays.
template <class C>
struct ClampToNumbers {
  C low;
  C high;
  C operator()(C x) const {
    x = low > x ? low : x;
    return high < x ? high : x;
  }
};

// False, without an effect, if a bound is a tensor or NaN.
bool clamp_to_numbers(const TensorRef& out, const Operand& a, const Operand& b, const Operand& c) {
  if (!b.is_number || !c.is_number) return false;
  bool is_done = false;
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const C low = element_input<T>(b).source.load(0);
    const C high = element_input<T>(c).source.load(0);
    if (low != low || high != high) return;
    Loop{}.template run<T>("ternary", ClampToNumbers<C>{low, high}, out, operand_input<T>(a));
    is_done = true;
  });
  return is_done;
}

}  // namespace

void ternary(TernaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
             const Operand& c, const Scalar& value) {
  if (op == TernaryOp::clamp && clamp_to_numbers(out, a, b, c)) return;
  run_ternary(Loop{}, op, out, a, b, c, value);
}

void where(const TensorRef& out, const TensorRef& condition, const Operand& a, const Operand& b) {
  run_where(Loop{}, out, condition, a, b);
}

}  // namespace gantry::kernels::host
