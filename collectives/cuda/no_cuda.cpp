// The collective kernels in builds without CUDA. They are never called, because there is no CUDA
// platform.
#include <cstdlib>

#include "collectives/nccl/relaxed_captures.hpp"
#include "collectives/protocol/launch.hpp"

namespace gantry {
void relax_captures() noexcept {}
}  // namespace gantry

namespace gantry::protocol::kernel {

#define KERNEL(name, PlanType, waits)                               \
  void name::enqueue(void*, const PlanType&, int) { std::abort(); } \
  void name::preload() { std::abort(); }
#include "collectives/protocol/kernels.def"
#undef KERNEL

}  // namespace gantry::protocol::kernel
