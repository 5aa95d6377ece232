#pragma once

#include <concepts>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/kernels/launch.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The tensors whose memory a launch uses; made by uses().
class GANTRY_API TensorUses {
 public:
  /// No tensors.
  TensorUses() = default;

  /// Adds tensors that the launch writes: `uses(x).writes(y)`. The stream sanitizer distinguishes
  /// them.
  template <std::same_as<Tensor>... Tensors>
  [[nodiscard]] TensorUses writes(const Tensors&... tensors) && {
    (uses_.push_back({tensors, true}), ...);
    return std::move(*this);
  }

  /// Checks that work of `stream` can reach every tensor, and reports the uses to the stream
  /// sanitizer. Errors begin with `op`.
  /// Throws: InvalidArgument for an undefined tensor and for CPU memory that is not pinned;
  /// DeviceMismatchError for memory of a device that is out of reach; RaceError.
  void check(const char* op, const Stream& stream) const;
  /// Tensor::record_use(stream) for every tensor.
  void record(const Stream& stream) const;

 private:
  template <std::same_as<Tensor>... Tensors>
  friend TensorUses uses(const Tensors&... tensors);

  struct Use {
    Tensor tensor;
    bool is_written;
  };
  std::vector<Use> uses_;
};

/// Names the tensors that a parallel_for() or launch() reads or writes.
///
/// The launch checks that its device can reach them: memory of the stream's device, memory of a
/// peer, or pinned CPU memory. It enables peer access where needed. It then records the use, so the
/// tensors may be destroyed at once. Their memory is not reused before the launch is complete. The
/// caller orders the launch with work on other streams. For the stream sanitizer the launch reads
/// the tensors, and writes those of TensorUses::writes(). In a capture the caller keeps tensors
/// from outside of it as long as the graph.
template <std::same_as<Tensor>... Tensors>
[[nodiscard]] TensorUses uses(const Tensors&... tensors) {
  TensorUses result;
  (result.uses_.push_back({tensors, false}), ...);
  return result;
}

}  // namespace gantry
