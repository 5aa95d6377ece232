#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/tensor.hpp>

/// Collectives of one process over several devices.
///
/// Shapes: a device may occur several times in a list. Empty tensors are allowed. Strided inputs
/// give the same results as contiguous ones; results are contiguous.
/// Device/stream: every function is ordered with the current streams of its devices. A result is
/// ready for the current stream of its own device. The host blocks only for pageable host memory.
/// No kernel waits on another kernel.
///
/// Throws, before anything changes: InvalidArgument for lists that are empty or of unequal lengths;
/// InvalidArgument for undefined tensors, and for CPU tensors where a device is needed; ShapeError;
/// DTypeError for unequal dtypes unless allow_cast is set.
/// @since 0.1
namespace gantry::comm {

/// The default size of a coalesced transfer, in bytes.
inline constexpr std::size_t kDefaultBufferBytes = std::size_t{10} << 20;

/// Permission to convert dtypes, as copy_() does.
/// @since 0.1
struct CastOptions {
  /// True converts tensors of other dtypes. False makes them a DTypeError.
  bool allow_cast = false;
};

/// Options of coalesced operations.
/// @since 0.1
struct CoalesceOptions {
  std::size_t buffer_bytes = kDefaultBufferBytes;  ///< most bytes of one buffer
  /// Allocates each output separately. Otherwise outputs are views of one buffer, which lives as
  /// long as any of them.
  bool separate_storages = false;
  /// reduce_add_coalesced: convert to the first list's dtypes, and results to the outputs' dtypes.
  bool allow_cast = false;
};

/// Copies `tensor` (on the CPU or a device) to every device, in the order of `devices`.
/// Aliasing: the entry for the tensor's own device is `tensor` itself.
/// Example: `const auto copies = comm::broadcast(ones({4}), {"cuda:0", "cuda:1"});`
[[nodiscard]] GANTRY_API std::vector<Tensor> broadcast(const Tensor& tensor,
                                                       const std::vector<Device>& devices);

/// Copies `tensor` into every tensor of `out`. These are on devices, and have its shape and dtype.
template <class T = Tensor>  // a template, so that broadcast(tensor, {}) means devices
GANTRY_API void broadcast(const Tensor& tensor, std::span<std::type_identity_t<T>> out,
                          CastOptions options = {});

/// Broadcasts a list of tensors, all on devices[0]. Tensors of one dtype share transfers of at most
/// `buffer_bytes`; a larger tensor has its own transfer.
/// Result [d][i] is tensors[i] on devices[d]. Result [0] holds the inputs themselves.
/// Aliasing: outputs of one transfer are views of one buffer, unless separate_storages is set.
[[nodiscard]] GANTRY_API std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices,
    std::size_t buffer_bytes = kDefaultBufferBytes);
/// As above.
[[nodiscard]] GANTRY_API std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<Tensor>& tensors, const std::vector<Device>& devices,
    const CoalesceOptions& options);

/// Sums any number of tensors of one shape and dtype onto `destination`, in list order.
/// GANTRY_COLL_ALGO=nccl uses another order, and does not support i16.
///
/// `destination` defaults to the current device. It may be a device without an input, or the CPU.
/// With allow_cast, inputs are converted to the dtype of the first one.
/// Device/stream: a result on the CPU is pinned, and the host does not wait for its copy.
/// Synchronize the first input's current stream before reading it.
/// Aliasing: a single tensor that is already on `destination` is returned itself. Otherwise the
/// result is new memory.
/// @code
/// const std::vector<Tensor> parts{ones({4}, "cuda:0"), ones({4}, "cuda:1")};
/// const Tensor sum = comm::reduce_add(parts, "cuda:0");
/// @endcode
[[nodiscard]] GANTRY_API Tensor reduce_add(const std::vector<Tensor>& tensors,
                                           std::optional<Device> destination = std::nullopt,
                                           CastOptions options = {});

/// Sums tensors into `out`, which has their shape and dtype, and is on any device or the CPU. With
/// allow_cast, inputs are converted to the dtype of the first one, and the sum to that of `out`.
/// Device/stream: as above for a pinned `out`. For a pageable `out` the host blocks.
/// Aliasing: `out` may be one of the tensors. Throws: InvalidArgument for other overlaps.
GANTRY_API void reduce_add(const std::vector<Tensor>& tensors, Tensor& out,
                           CastOptions options = {});

/// As reduce_add for lists: result [i] is the sum over d of inputs[d][i], with the bits of
/// reduce_add. Tensors of one dtype share transfers of at most `buffer_bytes`.
/// Throws: ShapeError if the lists have unequal lengths.
[[nodiscard]] GANTRY_API std::vector<Tensor> reduce_add_coalesced(
    const std::vector<std::vector<Tensor>>& inputs,
    std::optional<Device> destination = std::nullopt,
    std::size_t buffer_bytes = kDefaultBufferBytes);
/// As above.
[[nodiscard]] GANTRY_API std::vector<Tensor> reduce_add_coalesced(
    const std::vector<std::vector<Tensor>>& inputs, std::optional<Device> destination,
    const CoalesceOptions& options);

/// As above into given tensors: out[i] has the shape and dtype of inputs[0][i]. separate_storages
/// has no effect.
/// Device/stream: as reduce_add() into `out`, for each tensor of `out`.
/// Aliasing: out[i] may be inputs[d][i] for any d. Throws: InvalidArgument for other overlaps.
template <class T = Tensor>  // a template, so that reduce_add_coalesced(inputs, {}) means a device
GANTRY_API void reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                     std::span<std::type_identity_t<T>> out,
                                     const CoalesceOptions& options = {});

/// Optional streams by position, made from a vector or a braced list.
/// Example: `const comm::StreamList streams{std::nullopt, Stream::from_pool("cuda:1")};`
/// @since 0.1
class StreamList {
 public:
  StreamList() = default;
  /// A list of the given streams; an entry without a stream leaves the choice to the operation.
  StreamList(std::initializer_list<std::optional<Stream>> streams) : streams_(streams) {}
  StreamList(std::vector<std::optional<Stream>> streams) : streams_(std::move(streams)) {}
  StreamList(const std::vector<Stream>& streams) : streams_(streams.begin(), streams.end()) {}

  /// Number of entries.
  [[nodiscard]] std::size_t size() const noexcept { return streams_.size(); }
  /// Entry `i`, which is not checked.
  [[nodiscard]] const std::optional<Stream>& operator[](std::size_t i) const noexcept {
    return streams_[i];
  }

 private:
  std::vector<std::optional<Stream>> streams_;
};

/// Options of scatter().
/// @since 0.1
struct ScatterOptions {
  std::vector<std::int64_t> chunk_sizes = {};  ///< size of each chunk; empty: as chunk()
  Dim dim = 0;                                 ///< dimension to split; negative counts from the end
  /// Entry i is the stream of devices[i] that copies chunk i. The list may be shorter than
  /// `devices`. The caller orders later use of the chunk on other streams.
  StreamList streams = {};
  bool torch_chunking = false;  ///< omits empty chunks, unless `tensor` is empty
};

/// Splits `tensor` (CPU or device) along `dim` and sends chunk i to devices[i].
///
/// Shapes: the first chunks have size ceil(size / devices.size()) along `dim`. The next one has the
/// remainder, and all others are empty. There are devices.size() chunks; with torch_chunking, empty
/// chunks of a tensor that is not empty are omitted.
/// Aliasing: a chunk for the tensor's own device is a view.
/// Example: `const auto chunks = comm::scatter(ones({4, 3}), {"cuda:0", "cuda:1"});  // [2, 3]`
[[nodiscard]] GANTRY_API std::vector<Tensor> scatter(const Tensor& tensor,
                                                     const std::vector<Device>& devices,
                                                     const ScatterOptions& options = {});

/// Options of scatter() and gather() into given outputs.
/// @since 0.1
struct PieceOptions {
  Dim dim = 0;              ///< dimension to split or join; negative counts from the end
  bool allow_cast = false;  ///< convert to the outputs' dtype
};

/// Splits `tensor` along `dim` into chunks, one per tensor of `out` and of its size. Copies each
/// chunk into its tensor.
template <class T = Tensor>  // templates, so that scatter(tensor, {}) means devices
GANTRY_API void scatter(const Tensor& tensor, std::span<std::type_identity_t<T>> out, Dim dim = 0,
                        CastOptions options = {});
/// As above.
template <class T = Tensor>
GANTRY_API void scatter(const Tensor& tensor, std::span<std::type_identity_t<T>> out,
                        const PieceOptions& options);

/// Options of gather().
/// @since 0.1
struct GatherOptions {
  Dim dim = 0;                                       ///< dimension to join; negative from the end
  std::optional<Device> destination = std::nullopt;  ///< default: the current device
  bool allow_cast = false;                           ///< convert to the first tensor's dtype
};

/// Joins device tensors along `dim` on the destination.
/// Device/stream: a result on the CPU is pinned, and the host does not wait for its copies.
/// Synchronize the inputs' current streams before reading it.
/// Aliasing: always a new tensor.
/// Example: `const Tensor all = comm::gather({ones({2}, "cuda:0"), ones({2}, "cuda:1")});  // [4]`
[[nodiscard]] GANTRY_API Tensor gather(const std::vector<Tensor>& tensors,
                                       const GatherOptions& options = {});

/// Joins device tensors along `dim` into `out`, which is on any device or the CPU.
/// Device/stream: as above for a pinned `out`. For a pageable `out` the host blocks.
GANTRY_API void gather(const std::vector<Tensor>& tensors, Tensor& out, Dim dim = 0,
                       CastOptions options = {});
/// As above.
GANTRY_API void gather(const std::vector<Tensor>& tensors, Tensor& out,
                       const PieceOptions& options);

/// Reduces any number of tensors of one shape and dtype, in list order, and writes the result to
/// each of them. GANTRY_COLL_ALGO=nccl uses another order for floating dtypes. Throws:
/// InvalidArgument also for tensors that share memory.
/// Example: `comm::all_reduce({ones({4}, "cuda:0"), ones({4}, "cuda:1")});`
GANTRY_API void all_reduce(std::span<Tensor> tensors, ReduceOp op = ReduceOp::sum);
/// As above, for `all_reduce({a, b})`. The list has handles, whose elements are written.
GANTRY_API void all_reduce(std::initializer_list<Tensor> tensors, ReduceOp op = ReduceOp::sum);

/// Writes all n inputs, joined along dim 0 in list order, into every output.
/// Shapes: outputs have n times the rows of the inputs, or are [n, …] for inputs […].
/// Device/stream: outputs[d] is on the device of inputs[d].
GANTRY_API void all_gather(std::span<Tensor> outputs, std::span<const Tensor> inputs);

/// Reduces the n inputs and writes rows d·m … (d+1)·m-1 of the result to outputs[d].
/// Shapes: outputs have m rows and inputs n·m, or inputs are [n, …] for outputs […].
/// Device/stream: outputs[d] is on the device of inputs[d].
GANTRY_API void reduce_scatter(std::span<Tensor> outputs, std::span<const Tensor> inputs,
                               ReduceOp op = ReduceOp::sum);

/// Copies block j of inputs[i] to block i of outputs[j]. Blocks are equal parts of dim 0.
GANTRY_API void all_to_all(std::span<Tensor> outputs, std::span<const Tensor> inputs);

/// A range of devices or device names other than std::vector<Device>.
/// @since 0.1
template <class R>
concept DeviceRange = std::ranges::input_range<const R> &&
    std::convertible_to<std::ranges::range_reference_t<const R>, Device> &&
    !std::same_as<R, std::vector<Device>>;

namespace detail {
template <DeviceRange R>
[[nodiscard]] std::vector<Device> listed(const R& devices) {
  return std::vector<Device>(std::ranges::begin(devices), std::ranges::end(devices));
}
using gantry::detail::listed;
}  // namespace detail

/// As above, for any range of devices.
template <DeviceRange R>
[[nodiscard]] std::vector<Tensor> broadcast(const Tensor& tensor, const R& devices) {
  return broadcast(tensor, detail::listed(devices));
}
/// As above, for any range of devices.
template <DeviceRange R>
[[nodiscard]] std::vector<Tensor> scatter(const Tensor& tensor, const R& devices,
                                          const ScatterOptions& options = {}) {
  return scatter(tensor, detail::listed(devices), options);
}
/// As above, for any range of tensors.
template <TensorRange R>
[[nodiscard]] std::vector<std::vector<Tensor>> broadcast_coalesced(
    const R& tensors, const std::vector<Device>& devices,
    std::size_t buffer_bytes = kDefaultBufferBytes) {
  return broadcast_coalesced(detail::listed(tensors), devices, buffer_bytes);
}
/// As above, for any range of tensors.
template <TensorRange R>
[[nodiscard]] Tensor reduce_add(const R& tensors, std::optional<Device> destination = std::nullopt,
                                CastOptions options = {}) {
  return reduce_add(detail::listed(tensors), destination, options);
}
/// As above, for any range of tensors.
template <TensorRange R>
void reduce_add(const R& tensors, Tensor& out, CastOptions options = {}) {
  reduce_add(detail::listed(tensors), out, options);
}
/// As above, for any range of tensors.
template <TensorRange R>
[[nodiscard]] Tensor gather(const R& tensors, const GatherOptions& options = {}) {
  return gather(detail::listed(tensors), options);
}

}  // namespace gantry::comm
