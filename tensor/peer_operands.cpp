#include "tensor/peer_operands.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/tensor/peer_operands.hpp>

#include "kernels/peer_order.hpp"

namespace gantry {

namespace {

// The memory of the operands that a scope has adopted. It lets go of memory that nothing else owns
// at the next operand.
class AdoptedStorages final : public kernels::PeerScope {
 public:
  void add(const Storage& storage) {
    std::erase_if(storages_, [](const Storage& held) { return held.use_count() == 1; });
    if (std::find(storages_.begin(), storages_.end(), storage) == storages_.end()) {
      storages_.push_back(storage);
    }
  }
  void record_use(const void* data, const Stream& stream) override {
    for (const Storage& storage : storages_) {
      const auto* first = static_cast<const std::byte*>(storage.data());
      if (first <= data && data < first + storage.bytes()) storage.record_use(stream);
    }
  }

 private:
  std::vector<Storage> storages_;
};

}  // namespace

struct PeerOperands::Uses {
  AdoptedStorages storages;
};

PeerOperands::PeerOperands() {
  if (kernels::peer_scope() != nullptr) return;
  uses_ = std::make_unique<Uses>();
  kernels::set_peer_scope(&uses_->storages);
}

PeerOperands::~PeerOperands() {
  if (uses_ != nullptr) kernels::set_peer_scope(nullptr);
}

bool detail::takes_peer_operands() { return kernels::peer_scope() != nullptr; }
bool detail::adopt_peer_operand(Device device, const Tensor& operand) {
  kernels::PeerScope* const scope = kernels::peer_scope();
  if (scope == nullptr || device.is_cpu() || operand.is_cpu()) return false;
  if (!can_access_peer(device, operand.device()) || !operand.storage().is_peer_accessible()) {
    return false;
  }
  enable_peer_access(device, operand.device());
  static_cast<AdoptedStorages*>(scope)->add(operand.storage());
  return true;
}

}  // namespace gantry
