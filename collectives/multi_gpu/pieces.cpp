// Scatter and gather: one tensor of the root, and pieces of it on any device.
#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/batches.hpp"
#include "collectives/multi_gpu/call.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/selection/selector.hpp"

namespace gantry::comm {

namespace {

// True if every range of `tensor` along `dim` is contiguous.
bool has_dense_ranges(const Tensor& tensor, int dim) {
  if (!tensor.is_contiguous()) return false;
  const Shape& sizes = tensor.sizes();
  return std::all_of(sizes.begin(), sizes.begin() + dim, [](std::int64_t n) { return n == 1; });
}

// The address of the range from `index` along `dim`. Requires: has_dense_ranges().
std::byte* range_at(const Tensor& tensor, int dim, std::int64_t index) {
  return element(tensor, index * tensor.stride(dim));
}

// True if the bytes can be copied without conversion.
bool is_plain(const Tensor& from, const Tensor& to) {
  return from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() &&
         !from.is_view_of(to);
}

// Sends plain pieces on the root's stream.
void send(const MultiDeviceCall& call, std::span<const CopyRegion> runs,
          MultiDeviceCall::Operands operands, CachedOutputs* cached) {
  if (runs.empty()) return;
  call.run(
      operands, {},
      [&](const Stream& root, int, int) {
        copy_by_size(root, runs, comm_tuning().send_by_engines_bytes);
      },
      cached);
}

// Returns the extents of the chunks of a dimension of `size`.
std::vector<std::int64_t> extents(std::int64_t size, std::size_t devices,
                                  const ScatterOptions& options) {
  if (!options.chunk_sizes.empty()) return options.chunk_sizes;
  const auto count = static_cast<std::int64_t>(devices);
  std::vector<std::int64_t> result;
  result.reserve(devices);
  const std::int64_t each = (size + count - 1) / count;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t left = std::max<std::int64_t>(size - each * i, 0);
    // torch.chunk makes fewer chunks of a short dimension, but all chunks of an empty one.
    if (left == 0 && size > 0 && options.torch_chunking) break;
    result.push_back(std::min(each, left));
  }
  return result;
}

void check_extents(const Tensor& tensor, int dim, const std::vector<std::int64_t>& sizes) {
  __int128 total = 0;  // does not overflow
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw InvalidArgument(fmt::format("scatter: expected chunk_sizes >= 0, but got {}", size));
    }
    total += size;
  }
  if (total != tensor.size(dim)) {
    throw ShapeError(fmt::format(
        "scatter: expected chunk_sizes that add up to {} (the size of dimension {}), but got {}",
        tensor.size(dim), dim, total));
  }
}

}  // namespace

std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices,
                            const ScatterOptions& options) {
  const NamedCall named("scatter");
  require_defined("scatter", tensor, "argument 'tensor'");
  if (devices.empty()) throw InvalidArgument("scatter: Expected at least one device to scatter to");
  const std::vector<Device> resolved = checked_devices("scatter", devices);
  const int dim = checked_dim("scatter", options.dim, tensor);
  if (!options.chunk_sizes.empty() && options.chunk_sizes.size() != devices.size()) {
    throw InvalidArgument(fmt::format(
        "scatter: Expected devices and chunk_sizes to be of same length, but got len(devices) = {} "
        "and len(chunk_sizes) = {}",
        devices.size(), options.chunk_sizes.size()));
  }
  if (options.streams.size() > devices.size()) {
    throw InvalidArgument(fmt::format("scatter: expected at most {} streams, but got {}",
                                      devices.size(), options.streams.size()));
  }
  for (std::size_t i = 0; i < options.streams.size(); ++i) {
    if (!options.streams[i] || options.streams[i]->device() == resolved[i]) continue;
    throw InvalidArgument(fmt::format(
        "scatter: Expected the device associated with the stream at index {} (was {}) to match the "
        "device supplied at that index (expected {})",
        i, options.streams[i]->device().str(), resolved[i].str()));
  }
  const std::vector<std::int64_t> sizes = extents(tensor.size(dim), devices.size(), options);
  check_extents(tensor, dim, sizes);
  warn_without_nccl("comm::scatter", kOwnCopies);

  std::vector<Tensor> result;
  result.reserve(sizes.size());
  MultiDeviceCall call(Stream::current(tensor.is_cpu() ? resolved.front() : tensor.device()));
  std::pmr::vector<CopyRegion> runs(call.memory());
  runs.reserve(sizes.size());
  CachedOutputs cached(call.root());
  std::int64_t begin = 0;
  const bool dense = tensor.is_cuda() && has_dense_ranges(tensor, dim);
  Shape shape = tensor.sizes();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t first = begin;
    begin += sizes[i];
    if (tensor.device() == resolved[i]) {
      result.push_back(tensor.narrow(dim, first, sizes[i]));
      continue;
    }
    const bool has_stream = i < options.streams.size() && options.streams[i].has_value();
    const Stream owner = has_stream ? *options.streams[i] : Stream::current(resolved[i]);
    if (dense && reaches(tensor.device(), resolved[i])) {
      shape[dim] = sizes[i];
      Tensor chunk = cached.make(shape, tensor.dtype(), owner);
      if (chunk.storage().is_peer_accessible()) {
        const std::size_t bytes = chunk.nbytes();
        call.add(owner);
        if (bytes > 0) runs.push_back({range_at(tensor, dim, first), chunk.data(), bytes});
        result.push_back(std::move(chunk));
        continue;
      }
    }
    const StreamGuard guard(owner);
    result.push_back(tensor.narrow(dim, first, sizes[i]).to(resolved[i], {.non_blocking = true}));
  }
  send(call, runs, {std::span(&tensor, 1), result}, &cached);
  return result;
}

template <class T>
void scatter(const Tensor& tensor, std::span<std::type_identity_t<T>> out, Dim dim,
             CastOptions options) {
  const NamedCall named("scatter");
  require_defined("scatter", tensor, "argument 'tensor'");
  if (out.empty()) {
    throw InvalidArgument("scatter: Expected at least one output tensor to scatter to");
  }
  require_device_tensors("scatter", out, "output");
  require_writable("scatter", out);
  const int axis = checked_dim("scatter", dim, tensor);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Shape expected = tensor.sizes();
    if (out[i].dim() == tensor.dim()) expected[axis] = out[i].size(axis);
    if (out[i].sizes() != expected) {
      throw ShapeError(fmt::format(
          "scatter: Output tensor at index {} has incorrect shape: {}. Expected same shape except "
          "for scatter dim {} as the source tensor: {}",
          i, out[i].sizes().str(), axis, tensor.sizes().str()));
    }
    total += out[i].size(axis);
  }
  if (!options.allow_cast) require_dtype("scatter", out, tensor.dtype(), "output");
  if (total != tensor.size(axis)) {
    throw ShapeError(fmt::format(
        "scatter: Total size for output tensors along scatter dim {} does not match the source "
        "tensor size at dim {}. Expected {}, but got total size {}",
        axis, axis, tensor.size(axis), total));
  }
  warn_without_nccl("comm::scatter", kOwnCopies);
  // Outputs that may overlap are written one after the other.
  bool in_turn = tensor.is_cpu();
  for (std::size_t i = 0; i < out.size(); ++i) {
    in_turn = in_turn || shares_memory(out[i], out.first(i));
  }
  MultiDeviceCall call(Stream::current(in_turn ? out.front().device() : tensor.device()));
  std::pmr::vector<CopyRegion> runs(call.memory());
  runs.reserve(out.size());
  std::int64_t begin = 0;
  for (const Tensor& to : out) {
    const Tensor from = tensor.narrow(axis, begin, to.size(axis));
    begin += to.size(axis);
    if (in_turn || !is_plain(from, to) || !reaches(tensor.device(), to)) {
      to.copy_(from, {.non_blocking = true});
      continue;
    }
    call.add(Stream::current(to.device()));
    if (to.nbytes() > 0) runs.push_back({from.data(), to.data(), to.nbytes()});
  }
  send(call, runs, {std::span(&tensor, 1), out}, nullptr);
}

template <class T>
void scatter(const Tensor& tensor, std::span<std::type_identity_t<T>> out,
             const PieceOptions& options) {
  scatter<T>(tensor, out, options.dim, {.allow_cast = options.allow_cast});
}

template void scatter<Tensor>(const Tensor&, std::span<Tensor>, Dim, CastOptions);
template void scatter<Tensor>(const Tensor&, std::span<Tensor>, const PieceOptions&);

namespace {

// Shape of the joined tensor; checks that all tensors fit.
Shape joined_shape(const std::vector<Tensor>& tensors, int dim, bool allow_cast) {
  require_device_tensors("gather", tensors, "input");
  const Tensor& first = tensors.front();
  Shape shape = first.sizes();
  shape[dim] = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.dim() != first.dim()) {
      throw ShapeError(
          fmt::format("gather: Expected all input tensors to have the same number of dimensions, "
                      "but tensor at index {} has {} dimensions, (expected {})",
                      i, tensor.dim(), first.dim()));
    }
    Shape expected = first.sizes();
    expected[dim] = tensor.size(dim);
    if (tensor.sizes() != expected) {
      throw ShapeError(
          fmt::format("gather: Input tensor at index {} has invalid shape {}, but expected {}", i,
                      tensor.sizes().str(), expected.str()));
    }
    shape[dim] += tensor.size(dim);
  }
  if (!allow_cast) require_dtype("gather", tensors, first.dtype(), "input");
  return shape;
}

int gather_dim(const std::vector<Tensor>& tensors, int dim) {
  if (tensors.empty()) {
    throw InvalidArgument("gather: Expected at least one tensor to gather from");
  }
  require_defined("gather", tensors.front(), "input tensor at index 0");
  return checked_dim("gather", dim, tensors.front());
}

// Joins the tensors, the call's operands, in `out`, which is on the root's device or the CPU.
void join(MultiDeviceCall& call, const std::vector<Tensor>& tensors, const Tensor& out, int dim) {
  warn_without_nccl("comm::gather", kOwnCopies);
  const bool dense = out.is_cuda() && has_dense_ranges(out, dim);
  std::pmr::vector<CopyRegion> runs(call.memory());
  runs.reserve(tensors.size());
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t first = begin;
    begin += tensor.size(dim);
    const bool is_direct = call.is_direct() || (dense && reaches(out.device(), tensor));
    if (!dense || !is_direct || !is_plain(tensor, out)) {
      out.narrow(dim, first, tensor.size(dim)).copy_(tensor, {.non_blocking = true});
    } else if (tensor.numel() > 0) {
      runs.push_back({tensor.data(), range_at(out, dim, first), tensor.nbytes()});
    }
  }
  if (runs.empty()) return;
  call.run({tensors, std::span(&out, 1)}, {}, [&](const Stream& root, int, int) {
    // In a graph each copy is a node, and reading copy engines lose 12 us between two nodes.
    const bool by_kernel = driver().is_capturing(root.native());
    copy_by_size(root, runs, by_kernel ? SIZE_MAX : comm_tuning().fetch_by_engines_bytes);
  });
}

}  // namespace

Tensor gather(const std::vector<Tensor>& tensors, const GatherOptions& options) {
  const NamedCall named("gather");
  const int dim = gather_dim(tensors, options.dim);
  const Shape shape = joined_shape(tensors, dim, options.allow_cast);
  const Device destination = options.destination.value_or(Device::cuda()).resolved();
  MultiDeviceCall call(destination.is_cpu() ? tensors.front().device() : destination, {tensors});
  if (destination.is_cuda()) call.join_capture();
  Tensor out = empty(
      shape,
      {.dtype = tensors.front().dtype(), .device = destination, .pinned = destination.is_cpu()});
  join(call, tensors, out, dim);
  return out;
}

void gather(const std::vector<Tensor>& tensors, Tensor& out, Dim dim, CastOptions options) {
  const NamedCall named("gather");
  const int axis = gather_dim(tensors, dim);
  const Shape shape = joined_shape(tensors, axis, options.allow_cast);
  require_result("gather", out, shape, tensors.front().dtype(), options.allow_cast);
  MultiDeviceCall call(out.is_cpu() ? tensors.front().device() : out.device(), {tensors});
  join(call, tensors, out, axis);
}

void gather(const std::vector<Tensor>& tensors, Tensor& out, const PieceOptions& options) {
  gather(tensors, out, options.dim, {.allow_cast = options.allow_cast});
}

}  // namespace gantry::comm
