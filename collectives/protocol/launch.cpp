#include "collectives/protocol/launch.hpp"

#include "kernels/dispatch.hpp"

namespace gantry::protocol {

template <class Kernel>
void launch(const typename Kernel::Plan& plan, int blocks, const Stream& stream) {
  // The communicator enters the operands of the whole operation.
  constexpr const char* kName = "collective";
  // A copy that is not const moves.
  kernels::submit(
      kName, kernels::Target::on(stream), {},
      [plan = plan, blocks] { Kernel::simulate(plan, blocks); },
      [&](void* handle) { Kernel::enqueue(handle, plan, blocks); }, Kernel::kWaits);
}

#define KERNEL(name, Plan, waits) \
  template void launch<kernel::name>(const Plan& plan, int blocks, const Stream& stream);
#include "collectives/protocol/kernels.def"
#undef KERNEL

void preload() {
  if (platform() != Platform::cuda) return;
#define KERNEL(name, Plan, waits) kernel::name::preload();
#include "collectives/protocol/kernels.def"
#undef KERNEL
}

}  // namespace gantry::protocol
