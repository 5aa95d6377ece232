#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
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
// writes. A kernel without operands of tensors names its arrays for traces. One that moves elements
// takes every dtype; others take those that compute.
struct KernelName {
  KernelName(const char* name, int outputs = 1) : name(name), outputs(outputs) {}
  KernelName(const char* name, std::span<const ArrayOperands> arrays)
      : name(name), arrays(arrays) {}
  static KernelName moving(const char* name, int outputs = 1) {
    KernelName kernel(name, outputs);
    kernel.moves = true;
    return kernel;
  }

  const char* name;
  int outputs = 1;
  bool moves = false;
  std::span<const ArrayOperands> arrays{};
};

// Throws CudaError unless simulated device `device` can access every element of `operand`. Ignores
// empty and null operands.
void check_sim_operand(int device, const TensorRef& operand);

// Throws DTypeError "add does not compute with f8e4m3; cast it with to()".
[[noreturn]] void throw_does_not_compute(std::string_view op, DType dtype);
// The same for an operand of a kernel that computes. Ignores null operands.
inline void check_dtypes(const KernelName& kernel, std::span<const TensorRef* const> operands) {
  if (kernel.moves) return;
  for (const TensorRef* operand : operands) {
    if (operand == nullptr || computes(operand->dtype)) continue;
    throw_does_not_compute(kernel.name, operand->dtype);
  }
}

inline void check_dtypes(const KernelName& kernel,
                         std::initializer_list<const TensorRef*> operands) {
  check_dtypes(kernel, std::span(operands.begin(), operands.size()));
}

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
// before the submission, also their dtypes; null entries are skipped. The first ones are written
// (KernelName). The stream sanitizer sees no other memory of the kernel. `waits`: whether the
// kernel waits for kernels of other ranks.
template <class Host, class Gpu>
void submit(const KernelName& kernel, const Target& target,
            std::span<const TensorRef* const> operands, Host host, Gpu gpu,
            ::gantry::sim::KernelWaits waits = ::gantry::sim::KernelWaits::never) {
  check_dtypes(kernel, operands);
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
