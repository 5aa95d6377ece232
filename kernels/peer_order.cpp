#include "kernels/peer_order.hpp"

#include <algorithm>

#include <gantry/extend/driver.hpp>

namespace gantry::kernels {
namespace {

thread_local constinit PeerScope* own_scope = nullptr;

}  // namespace

constinit std::atomic<int> open_peer_scopes{0};

PeerScope* peer_scope() noexcept { return own_scope; }
void set_peer_scope(PeerScope* scope) noexcept {
  open_peer_scopes.fetch_add((scope != nullptr) - (own_scope != nullptr),
                             std::memory_order_relaxed);
  own_scope = scope;
}

void PeerOrder::begin(const Target& target, std::span<const TensorRef* const> operands) {
  scope_ = peer_scope();
  if (scope_ == nullptr || target.is_cpu()) return;
  target_ = &target;
  const int own = target.device().index;
  for (const TensorRef* operand : operands) {
    if (operand == nullptr || operand->data == nullptr) continue;
    const int device = driver().pointer_info(operand->data).device;
    if (device >= 0 && device != own) uses_.push_back({operand->data, device});
  }
  for (auto use = uses_.begin(); use != uses_.end(); ++use) {
    const bool is_waited_for = std::any_of(
        uses_.begin(), use, [&](const Use& before) { return before.device == use->device; });
    if (!is_waited_for) target.stream().wait(Stream::current(Device::cuda(use->device)));
  }
}

void PeerOrder::end() {
  try {
    const Event done = target_->stream().record();
    for (const Use& use : uses_) {
      Stream::current(Device::cuda(use.device)).wait(done);
      scope_->record_use(use.data, target_->stream());
    }
  } catch (...) {
    // Without the order, the memory could be reused while the kernel reads it.
    target_->stream().synchronize();
    throw;
  }
}

}  // namespace gantry::kernels
