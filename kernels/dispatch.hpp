#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "device/sim/streams/sim_launch.hpp"
#include "kernels/observed_op.hpp"
#include "kernels/peer_order.hpp"
#include "kernels/target.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::kernels {

// A kernel in reports of the stream sanitizer and in traces, and how many of its first operands it
// writes. A kernel without operands of tensors names its arrays for traces.
struct KernelName {
  KernelName(const char* name, int outputs = 1) : name(name), outputs(outputs) {}
  KernelName(const char* name, std::span<const ArrayOperands> arrays)
      : name(name), arrays(arrays) {}

  const char* name;
  int outputs = 1;
  std::span<const ArrayOperands> arrays{};
};

// Throws CudaError unless simulated device `device` can access every element of `operand`. Ignores
// empty and null operands.
void check_sim_operand(int device, const TensorRef& operand);

// An array of memory as an operand of the sanitizer.
[[nodiscard]] sanitizer::Use array_use(const void* data, std::int64_t count, DType dtype,
                                       bool is_write);

// The submission of a kernel while the sanitizer is on. On the CPU target it is a use by the host.
class CheckedSubmission {
 public:
  // Null operands are skipped. Throws: RaceError.
  CheckedSubmission(const KernelName& kernel, const Target& target,
                    std::span<const TensorRef* const> operands);
  CheckedSubmission(const KernelName& kernel, const Target& target,
                    std::span<const sanitizer::Use> operands);
  void commit() noexcept {
    if (submission_) submission_->commit();
  }

 private:
  void enter(const KernelName& kernel, const Target& target,
             std::span<const sanitizer::Use> operands);

  std::optional<sanitizer::Submission> submission_;
};

// submit() behind the sanitizer.
template <class Host, class Gpu>
void submit_unchecked(const Target& target, std::span<const TensorRef* const> operands, Host host,
                      Gpu gpu, ::gantry::sim::KernelWaits waits) {
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

// Submits one kernel to `target`. CPU: host() on the calling thread. Simulated device: host() as a
// task of the stream. CUDA: gpu(stream handle), with the device current.
//
// On simulated devices `host` outlives the call, so it captures by value. Operands are checked
// before the submission; null entries are skipped. The first ones are written (KernelName). The
// stream sanitizer sees no other memory of the kernel. `waits`: whether the kernel waits for
// kernels of other ranks.
template <class Host, class Gpu>
void submit(const KernelName& kernel, const Target& target,
            std::span<const TensorRef* const> operands, Host host, Gpu gpu,
            ::gantry::sim::KernelWaits waits = ::gantry::sim::KernelWaits::never) {
  const ObservedOp observed(target, operands, kernel.name, kernel.arrays);
  PeerOrder order(target, operands);
  if (sanitizer::is_on() && !operands.empty()) [[unlikely]] {
    CheckedSubmission checked(kernel, target, operands);
    submit_unchecked(target, operands, std::move(host), std::move(gpu), waits);
    checked.commit();
    order.commit();
    return;
  }
  submit_unchecked(target, operands, std::move(host), std::move(gpu), waits);
  order.commit();
}
template <class Host, class Gpu>
void submit(const KernelName& kernel, const Target& target,
            std::initializer_list<const TensorRef*> operands, Host host, Gpu gpu,
            ::gantry::sim::KernelWaits waits = ::gantry::sim::KernelWaits::never) {
  submit(kernel, target, std::span(operands.begin(), operands.size()), std::move(host),
         std::move(gpu), waits);
}

}  // namespace gantry::kernels
