#include "kernels/impl/binary.inl"

#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/elementwise/line.hpp"
#include "kernels/host/launch.hpp"

namespace gantry::kernels {

void host::binary(BinaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
                  const Scalar& alpha) {
  run_binary(Loop{}, op, out, a, b, alpha);
}

void binary_line(BinaryOp op, DType dtype, std::int64_t numel, void* out, const void* a,
                 const void* b, const Scalar& alpha) {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const ElementSource<T> left{static_cast<const T*>(a), {}, false};
    const ElementSource<T> right{static_cast<const T*>(b), {}, false};
    const bool defined = detail::with_binary<T>(op, alpha, [&](auto functor) {
      host::Loop::run_line(functor, numel, static_cast<T*>(out), left, right);
    });
    if (!defined) detail::throw_undefined("binary", static_cast<int>(op), dtype);
  });
}

}  // namespace gantry::kernels
