#include "kernels/impl/cast.inl"

#include "kernels/host/launch.hpp"
#include "kernels/layout/host_copy.hpp"

namespace gantry::kernels::host {

void cast(TensorRef out, TensorRef in) {
  use_signed_twins(out, in);
  if (computes(out.dtype) && computes(in.dtype)) return copy(out, in);
  run_cast(Loop{}, out, in);
}

}  // namespace gantry::kernels::host
