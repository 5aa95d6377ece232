#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/kernels/launch.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

namespace detail {

// Memory of several ranks that a launch uses, such as that of a window. The kernel may wait for
// kernels of other ranks. check() and record() are those of MemoryUses.
class PeerUse {
 public:
  PeerUse() = default;
  PeerUse(const PeerUse&) = delete;
  PeerUse& operator=(const PeerUse&) = delete;
  virtual ~PeerUse() = default;
  virtual void check(const char* op, const Stream& stream) const = 0;
  virtual void record(const Stream& stream) const = 0;
};

// A type with a function peer_use(), as Window.
template <class T>
concept UsedWithPeers = requires(const T& memory) {
  { peer_use(memory) } -> std::convertible_to<std::shared_ptr<const PeerUse>>;
};

}  // namespace detail

/// The tensors and windows whose memory a launch uses; made by uses().
/// Example: `const TensorUses memory = uses(ones({4}, "cuda:0"));  // for a launch()`
/// @since 0.3
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
  /// Throws: InvalidArgument for an undefined tensor or window, for CPU memory that is not pinned,
  /// and for a window of another device than that of `stream`; DeviceMismatchError for memory of a
  /// device that is out of reach; PeerLostError or TimeoutError if a window's group is broken;
  /// RaceError.
  void check(const char* op, const Stream& stream) const;
  /// Tensor::record_use(stream) for every tensor. Windows keep the other ranks' memory open until
  /// the work of `stream` so far is complete.
  void record(const Stream& stream) const;
  /// True if the launch may wait for kernels of other ranks: it uses a window, or memory of one.
  [[nodiscard]] bool waits_for_peers() const;
  /// The dtypes and shapes of the tensors, such as "f32[2, 3] i64[]".
  [[nodiscard]] std::string str() const;

 private:
  template <class... Memory>
  requires((std::same_as<Memory, Tensor> || detail::UsedWithPeers<Memory>)&&...) friend TensorUses
      uses(const Memory&... memory);

  void add(const Tensor& tensor) { uses_.push_back({tensor, false}); }
  template <detail::UsedWithPeers Memory>
  void add(const Memory& memory) {
    peer_uses_.push_back(peer_use(memory));
  }

  struct Use {
    Tensor tensor;
    bool is_written;
  };
  std::vector<Use> uses_;
  std::vector<std::shared_ptr<const detail::PeerUse>> peer_uses_;
};

/// Names the tensors and windows that a parallel_for() or launch() reads or writes.
///
/// The launch checks that its device can reach them: memory of the stream's device, memory of a
/// peer, or pinned CPU memory. It enables peer access where needed. It then records the use, so the
/// tensors may be destroyed at once. Their memory is not reused before the launch is complete. The
/// caller orders the launch with work on other streams. For the stream sanitizer the launch reads
/// the tensors, and writes those of TensorUses::writes(). In a capture the caller keeps tensors
/// from outside of it as long as the graph.
///
/// A Window stands for the memory and the signal pads of all its ranks. A kernel that uses a
/// window, a tensor of one or a signal pad may wait for kernels of other ranks. Simulated devices
/// know by this that the launch must not block, and run the kernels of the other ranks meanwhile.
/// @since 0.3
template <class... Memory>
requires((std::same_as<Memory, Tensor> || detail::UsedWithPeers<Memory>)&&...)
    [[nodiscard]] TensorUses uses(const Memory&... memory) {
  TensorUses result;
  (result.add(memory), ...);
  return result;
}

}  // namespace gantry
