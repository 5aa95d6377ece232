#pragma once

#include <initializer_list>
#include <utility>

#include <gantry/device/device.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "device/sim/sim_launch.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// Throws CudaError unless every element of `operand` may be accessed from simulated device
// `device`. Empty and null operands are fine.
void check_sim_operand(int device, const TensorRef& operand);

// Runs one kernel where `target` says: `host()` on the calling thread for CPU tensors, `host()` as
// a task of the stream on simulated devices, `gpu(stream handle)` with the device current on CUDA.
//
// `host` outlives the call on simulated devices: it captures by value. Operands are checked before
// anything is submitted; null entries are skipped. `waits`: whether the kernel waits for other
// ranks' kernels.
template <class Host, class Gpu>
void submit(const Target& target, std::initializer_list<const TensorRef*> operands, Host host,
            Gpu gpu, ::gantry::sim::KernelWaits waits = ::gantry::sim::KernelWaits::never) {
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
