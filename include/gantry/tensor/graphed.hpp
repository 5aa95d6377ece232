#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Options of make_graphed().
/// @since 0.3
struct GraphedOptions {
  int warm_up = 1;  ///< number of eager runs before the capture, which load libraries
  MemPoolId pool = MemPoolId::none;  ///< memory that is shared with other captures
  /// Other devices that the function works on; their current streams take part in the capture.
  std::vector<Device> devices = {};
};

/// A function over tensors that runs as one graph. make_graphed() makes it.
///
/// Move-only; after a move every member of the source throws InvalidArgument.
/// Thread safety: one thread at a time.
/// @code
/// const Tensor x = ones({4}, "cuda:0");
/// auto step = make_graphed(
///     [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0].exp()}; }, {x});
/// const Tensor y = step({x})[0].clone();
/// @endcode
/// @since 0.3
class GANTRY_API Graphed {
 public:
  /// A function over tensors.
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

  /// Captures `function`; see make_graphed().
  Graphed(const Function& function, std::span<const Tensor> samples,
          const GraphedOptions& options = {});

  /// Copies the inputs into the captured inputs, replays the graph, and returns the captured
  /// outputs.
  ///
  /// Shapes, DTypes: those of the samples.
  /// Device/stream: the current stream of the samples' device, ordered with the current streams of
  /// all devices of the graph as in Graph::replay(); asynchronous.
  /// Aliasing: the outputs are always the same tensors, and each call overwrites them. Use clone()
  /// to keep results.
  /// Throws, before anything runs: InvalidArgument, ShapeError, DTypeError or DeviceMismatchError
  /// if the inputs differ from the samples.
  const std::vector<Tensor>& operator()(std::span<const Tensor> inputs);
  /// As above for a list: `step({x, y})`.
  const std::vector<Tensor>& operator()(std::initializer_list<Tensor> inputs) {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }

  /// The graph.
  [[nodiscard]] const Graph& graph() const;

 private:
  struct GANTRY_LOCAL State;
  struct Destroy {
    void operator()(State* state) const noexcept;
  };

  detail::CheckedPtr<std::unique_ptr<State, Destroy>> state_;
};

/// Captures `function` into a graph, and returns a callable that replays it. The captured inputs
/// are tensors like `samples`.
///
/// The function may read and write other tensors; the graph then uses them, too. It must not wait
/// for the device, and its work must not depend on elements. It is called `options.warm_up` + 1
/// times. The default random generators of its devices are then as if there had been no call.
/// Shapes, DTypes: at least one sample, of any shape and dtype.
/// Device/stream: all samples on one device; `options.devices` names the others that the function
/// works on; the host waits for the warm-up.
/// Throws: InvalidArgument without samples or on the CPU; DeviceMismatchError; CaptureError if a
/// call of the function cannot be captured; exceptions of the function.
/// @code
/// const Tensor x = ones({4}, "cuda:0");
/// auto twice = make_graphed(
///     [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * 2}; }, {x});
/// const Tensor y = twice({x})[0];
/// @endcode
/// @since 0.3
template <class Function>
[[nodiscard]] Graphed make_graphed(Function&& function, std::span<const Tensor> samples,
                                   const GraphedOptions& options = {}) {
  return Graphed(Graphed::Function(std::forward<Function>(function)), samples, options);
}
/// As above for a list: `make_graphed(step, {x, y})`.
/// @since 0.3
template <class Function>
[[nodiscard]] Graphed make_graphed(Function&& function, std::initializer_list<Tensor> samples,
                                   const GraphedOptions& options = {}) {
  return make_graphed(std::forward<Function>(function),
                      std::span<const Tensor>(samples.begin(), samples.size()), options);
}

}  // namespace gantry
