#pragma once

#include <memory>

#include <gantry/core/export.hpp>

namespace gantry {

/// A scope in which the calling thread's operations take operands on other devices.
///
/// Within it, an operation on one GPU reads tensors of every GPU to which that one has peer access
/// (can_access_peer), directly and without a copy. Access is enabled at the first use.
///
/// The operation runs on the device of its first operand that is not on the CPU, as ever, and its
/// result is there. The condition of where() and masked_fill() decides only if no other tensor is
/// on a GPU. Outputs and tensors that the operation writes must be on that device too. Tensors of
/// an index list (Tensor::index) are copied to it. Tensors on the CPU keep their rules.
///
/// Device/stream: the current stream of the operation's device first waits for the current streams
/// of the operands' devices, and those wait for the operation afterwards. The allocator knows of
/// the use, so an operand may be destroyed at once. The host does not block. In a capture, the
/// current streams of those devices belong to the capture.
///
/// Without peer access, and for foreign memory that only its own device can access, the error is
/// that of an operation outside the scope: DeviceMismatchError, before anything changes.
///
/// Scopes nest. Thread safety: a scope belongs to the thread that made it, which also ends it.
class GANTRY_API PeerOperands {
 public:
  /// Opens the scope.
  PeerOperands();
  /// Ends it. The order of operations within it stays.
  ~PeerOperands();
  PeerOperands(const PeerOperands&) = delete;
  PeerOperands& operator=(const PeerOperands&) = delete;

 private:
  struct GANTRY_LOCAL Uses;
  std::unique_ptr<Uses> uses_;  // null within another scope
};

}  // namespace gantry
