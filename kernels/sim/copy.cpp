#include "kernels/sim/copy.hpp"

#include <cstring>

#include "kernels/impl/copy.inl"
#include "kernels/sim/launch.hpp"

namespace gantry::kernels::host {

void copy(const TensorRef& out, const TensorRef& in) {
  if (out.dtype == in.dtype && out.is_contiguous() && in.is_contiguous()) {
    std::memmove(out.data, in.data,
                 static_cast<std::size_t>(out.numel()) * element_size(out.dtype));
    return;
  }
  run_copy(Loop{}, out, in);
}

void fill(const TensorRef& out, const Scalar& value) { run_fill(Loop{}, out, value); }

void arange(const TensorRef& out, const Scalar& start, const Scalar& step, std::int64_t first) {
  run_arange(Loop{}, out, start, step, first);
}

void triangle(const TensorRef& out, const TensorRef& in, bool lower, std::int64_t diagonal) {
  run_triangle(Loop{}, out, in, lower, diagonal);
}

}  // namespace gantry::kernels::host
