#pragma once

#include <concepts>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/kernels/launch.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The tensors whose memory a launch uses; made by uses().
class GANTRY_API TensorUses {
 public:
  /// See uses().
  explicit TensorUses(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}

  /// Checks that work of `stream` can reach every tensor. `op` begins the errors.
  /// Throws: InvalidArgument for an undefined tensor and for CPU memory that is not pinned;
  /// DeviceMismatchError for memory of a device that is out of reach.
  void check(const char* op, const Stream& stream) const;
  /// Tensor::record_use(stream) for every tensor.
  void record(const Stream& stream) const;

 private:
  std::vector<Tensor> tensors_;
};

/// Names the tensors that a parallel_for() or launch() reads or writes.
///
/// The launch checks that its device can reach them: memory of the stream's device, of a peer with
/// access (which it enables), or pinned CPU memory. Behind the launch it records the use, so the
/// tensors may be destroyed at once: their memory is reused when the launch is done. The order with
/// work on other streams stays the caller's. In a capture the caller keeps tensors from outside of
/// it as long as the graph.
template <std::same_as<Tensor>... Tensors>
[[nodiscard]] TensorUses uses(const Tensors&... tensors) {
  return TensorUses({tensors...});
}

}  // namespace gantry
