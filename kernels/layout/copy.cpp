#include "kernels/layout/copy.hpp"

#include "kernels/direct_call.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/layout/cuda_copy.hpp"
#include "kernels/layout/host_copy.hpp"

namespace gantry::kernels {

void copy(const Target& target, const TensorRef& out, const TensorRef& in) {
  if (out.numel() == 0) return;
  if (is_direct_call(target)) return host::copy(out, in);
  submit(
      KernelName::moving("copy"), target, {&out, &in}, [=] { host::copy(out, in); },
      [&](void* stream) { cuda::copy(stream, out, in); });
}

void fill(const Target& target, const TensorRef& out, const Scalar& value) {
  if (out.numel() == 0) return;
  if (is_direct_call(target)) return host::fill(out, value);
  submit(
      KernelName::moving("fill"), target, {&out}, [=] { host::fill(out, value); },
      [&](void* stream) { cuda::fill(stream, out, value); });
}

void arange(const Target& target, const TensorRef& out, const Scalar& start, const Scalar& step,
            std::int64_t first) {
  if (out.numel() == 0) return;
  submit(
      "arange", target, {&out}, [=] { host::arange(out, start, step, first); },
      [&](void* stream) { cuda::arange(stream, out, start, step, first); });
}

void triangle(const Target& target, const TensorRef& out, const TensorRef& in, bool lower,
              std::int64_t diagonal) {
  if (out.numel() == 0) return;
  submit(
      KernelName::moving(lower ? "tril" : "triu"), target, {&out, &in},
      [=] { host::triangle(out, in, lower, diagonal); },
      [&](void* stream) { cuda::triangle(stream, out, in, lower, diagonal); });
}

}  // namespace gantry::kernels
