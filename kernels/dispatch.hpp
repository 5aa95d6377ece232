#pragma once

#include <initializer_list>
#include <source_location>
#include <utility>

#include <gantry/device/device.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "device/sim/sim_launch.hpp"
#include "kernels/observed_op.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// Throws CudaError unless simulated device `device` can access every element of `operand`. Ignores
// empty and null operands.
void check_sim_operand(int device, const TensorRef& operand);

// Submits one kernel to `target`. CPU: host() on the calling thread. Simulated device: host() as a
// task of the stream. CUDA: gpu(stream handle), with the device current.
//
// On simulated devices `host` outlives the call, so it captures by value. Operands are checked
// before the submission; null entries are skipped. `waits`: whether the kernel waits for kernels of
// other ranks. `where`: a place in the function that names the kernel.
template <class Host, class Gpu>
void submit(const Target& target, std::initializer_list<const TensorRef*> operands, Host host,
            Gpu gpu, ::gantry::sim::KernelWaits waits = ::gantry::sim::KernelWaits::never,
            std::source_location where = std::source_location::current()) {
  const ObservedOp observed(target, operands, where);
  if (target.is_cpu()) {
    host();
    return;
  }
  const NativeStream& stream = target.stream().native();
  if (platform() == Platform::simulated) {
    for (const TensorRef* operand : operands) {
      if (operand != nullptr) check_sim_operand(stream.device, *operand);
    }
    ::gantry::sim::launch(stream, std::move(host), waits);
    return;
  }
  const DeviceGuard guard(target.device());
  gpu(stream.handle);
}

}  // namespace gantry::kernels
