#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/ignored_choice.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/chunk_copies.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/multi_gpu/output_cache.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry::comm {

namespace {

// Returns the extents of the chunks of a dimension of `size`.
std::vector<std::int64_t> extents(std::int64_t size, std::size_t devices,
                                  const ScatterOptions& options) {
  if (!options.chunk_sizes.empty()) return options.chunk_sizes;
  const auto count = static_cast<std::int64_t>(devices);
  std::vector<std::int64_t> result;
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

bool share_memory(std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (tensors[i].is_view_of(tensors[j])) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices,
                            const ScatterOptions& options) {
  const NamedCall named("scatter");
  require_defined("scatter", tensor, "argument 'tensor'");
  if (devices.empty()) throw InvalidArgument("scatter: Expected at least one device to scatter to");
  const std::vector<Device> resolved = checked_devices("scatter", devices);
  const int dim = checked_dim("scatter", options.dim, tensor.dim());
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
  std::vector<ChunkCopy> plain;
  result.reserve(sizes.size());
  plain.reserve(sizes.size());
  const Stream root = Stream::current(tensor.is_cpu() ? resolved.front() : tensor.device());
  CachedOutputs cached(root);
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
      const Tensor chunk = cached.make(shape, tensor.dtype(), owner);
      if (reaches(tensor.device(), chunk)) {
        result.push_back(chunk);
        plain.push_back({tensor, chunk, owner, range_bytes(tensor, dim, sizes[i]),
                         range_bytes(tensor, dim, first), 0});
        continue;
      }
    }
    const StreamGuard guard(owner);
    result.push_back(tensor.narrow(dim, first, sizes[i]).to(resolved[i], {.non_blocking = true}));
  }
  send_chunks(root, plain, &cached);
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
  const int axis = checked_dim("scatter", dim, tensor.dim());
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
    if (!options.allow_cast && out[i].dtype() != tensor.dtype()) {
      throw DTypeError(
          fmt::format("scatter: output tensor at index {} has dtype {}, but expected {}", i,
                      name(out[i].dtype()), name(tensor.dtype())));
    }
    total += out[i].size(axis);
  }
  if (total != tensor.size(axis)) {
    throw ShapeError(fmt::format(
        "scatter: Total size for output tensors along scatter dim {} does not match the source "
        "tensor size at dim {}. Expected {}, but got total size {}",
        axis, axis, tensor.size(axis), total));
  }
  warn_without_nccl("comm::scatter", kOwnCopies);
  // Outputs that may overlap are written one after the other.
  const bool in_turn = share_memory(out);
  std::vector<ChunkCopy> plain;
  std::int64_t begin = 0;
  for (Tensor& to : out) {
    const Tensor from = tensor.narrow(axis, begin, to.size(axis));
    begin += to.size(axis);
    if (!in_turn && tensor.is_cuda() && is_plain(from, to, tensor.device())) {
      plain.push_back({from, to, Stream::current(to.device()), to.nbytes()});
    } else {
      to.copy_(from, {.non_blocking = true});
    }
  }
  if (!plain.empty()) send_chunks(Stream::current(tensor.device()), plain, nullptr);
}

template <class T>
void scatter(const Tensor& tensor, std::span<std::type_identity_t<T>> out,
             const PieceOptions& options) {
  const NamedCall named("scatter");
  scatter<T>(tensor, out, options.dim, {.allow_cast = options.allow_cast});
}

template void scatter<Tensor>(const Tensor&, std::span<Tensor>, Dim, CastOptions);
template void scatter<Tensor>(const Tensor&, std::span<Tensor>, const PieceOptions&);

}  // namespace gantry::comm
