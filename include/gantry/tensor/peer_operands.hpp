#pragma once

#include <memory>

#include <gantry/core/export.hpp>

namespace gantry {

/// A scope in which operations of the calling thread may read operands on other devices.
///
/// Within it, an operation on one GPU can read tensors of peers: GPUs to which it has access
/// (can_access_peer). It reads them directly, without a copy. The first use enables the access.
///
/// The operation runs, as always, on the device of its first operand that is not on the CPU. Its
/// result is there. The condition of where() and masked_fill() determines the device only if no
/// other tensor is on a GPU. Outputs and tensors that the operation writes must be on that device.
/// Tensors of an index list (Tensor::index) are copied to it. The rules for CPU tensors are
/// unchanged.
///
/// Device/stream: the current stream of the operation's device first waits for the current streams
/// of the operands' devices. Afterwards these wait for the operation. The use is recorded with the
/// allocator, so an operand may be destroyed at once. The host does not block. Precondition in a
/// capture: the current streams of those devices take part in it.
///
/// Throws: DeviceMismatchError from the operation, before anything changes, without peer access,
/// and for foreign memory that only its own device can access.
///
/// Scopes nest. Thread safety: a scope belongs to the thread that made it, which also ends it.
/// @code
/// const Tensor here = ones({4}, "cuda:0"), there = ones({4}, "cuda:1");
/// const PeerOperands scope;
/// const Tensor sum = here + there;  // on cuda:0
/// @endcode
/// @since 0.3
class GANTRY_API PeerOperands {
 public:
  /// Opens the scope.
  PeerOperands();
  /// Ends the scope. Submitted operations keep their order.
  ~PeerOperands();
  PeerOperands(const PeerOperands&) = delete;
  PeerOperands& operator=(const PeerOperands&) = delete;

 private:
  struct GANTRY_LOCAL Uses;
  std::unique_ptr<Uses> uses_;  // null within another scope
};

}  // namespace gantry
