// The order of kernels that use memory of other devices, inside a scope of PeerOperands.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include <gantry/kernels/tensor_ref.hpp>
#include <gantry/streams/stream.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// The permission of the calling thread for operands on other devices, with the tensors that have
// used it.
class PeerScope {
 public:
  // Records that the work submitted to `stream` uses the memory at `data`.
  virtual void record_use(const void* data, const Stream& stream) = 0;

 protected:
  ~PeerScope() = default;
};

// The number of scopes of all threads. While it is 0, a kernel's submission costs one load more.
extern constinit std::atomic<int> open_peer_scopes;

// The calling thread's scope; null if it has none.
[[nodiscard]] PeerScope* peer_scope() noexcept;
// Makes `scope` the calling thread's.
void set_peer_scope(PeerScope* scope) noexcept;

// Note [Peer operands]
// A kernel reads operands on other devices directly. Its stream first waits for the current stream
// of each such device, which may still write them. Afterwards those streams wait for the kernel:
// they may write the operands again, and free temporaries that were made on them. An operand may
// belong to a third stream, so the use is also recorded with the allocator. Conversions make
// operands that no check has seen, so the driver is queried for the device of an address.

// The order of one kernel.
class PeerOrder {
 public:
  // Makes the target's stream wait for the devices of `operands`. Null operands are skipped.
  PeerOrder(const Target& target, std::span<const TensorRef* const> operands) {
    if (open_peer_scopes.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      begin(target, operands);
    }
  }
  // Makes the streams of those devices wait for the kernel, which has been submitted.
  void commit() {
    if (!uses_.empty()) [[unlikely]] {
      end();
    }
  }

 private:
  // An operand on another device.
  struct Use {
    const void* data;
    int device;
  };
  void begin(const Target& target, std::span<const TensorRef* const> operands);
  void end();

  const Target* target_ = nullptr;
  PeerScope* scope_ = nullptr;
  std::vector<Use> uses_;
};

}  // namespace gantry::kernels
