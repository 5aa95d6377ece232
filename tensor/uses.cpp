#include <gantry/tensor/uses.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/signal_memory.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "tensor/check.hpp"

namespace gantry {

namespace {

void check_reach(const char* op, const Tensor& tensor, const Stream& stream) {
  const Device device = stream.device();
  if (tensor.device() == device) return;
  if (tensor.is_cpu()) {
    if (tensor.is_pinned()) return;
    throw InvalidArgument(
        fmt::format("{}: expected tensors on {}, or pinned, but got one in pageable CPU memory", op,
                    device.str()),
        device.str());
  }
  if (!can_access_peer(device, tensor.device())) {
    throw DeviceMismatchError(
        fmt::format("{}: expected tensors that {} can access, but got one on {}", op, device.str(),
                    tensor.device().str()),
        device.str());
  }
  enable_peer_access(device, tensor.device());
}

}  // namespace

void TensorUses::check(const char* op, const Stream& stream) const {
  for (const Use& use : uses_) {
    detail::check_defined(op, "uses", use.tensor);
    check_reach(op, use.tensor, stream);
    if (platform() == Platform::simulated) {
      kernels::check_sim_operand(stream.device().index, use.tensor.ref());
    }
  }
  for (const auto& use : peer_uses_) use->check(op, stream);
  if (sanitizer::is_on()) {
    std::vector<sanitizer::Use> operands;
    for (const Use& use : uses_) operands.push_back({use.tensor, use.is_written});
    sanitizer::uses(op, stream, operands);
  }
}

void TensorUses::record(const Stream& stream) const {
  for (const Use& use : uses_) use.tensor.record_use(stream);
  for (const auto& use : peer_uses_) use->record(stream);
}

bool TensorUses::waits_for_peers() const {
  return !peer_uses_.empty() || std::ranges::any_of(uses_, [](const Use& use) {
    return kernels::SignalMemory::contains(use.tensor.storage().data());
  });
}

std::string TensorUses::str() const {
  std::string text;
  for (const Use& use : uses_) {
    if (!use.tensor.defined()) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", name(use.tensor.dtype()),
                        use.tensor.sizes().str());
  }
  return text;
}

}  // namespace gantry
