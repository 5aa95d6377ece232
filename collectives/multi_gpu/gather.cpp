#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/ignored_choice.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/chunk_copies.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry::comm {

namespace {

// Shape of the joined tensor; checks that all tensors fit.
Shape joined_shape(const std::vector<Tensor>& tensors, int dim, bool allow_cast) {
  if (tensors.empty()) {
    throw InvalidArgument("gather: Expected at least one tensor to gather from");
  }
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
    if (!allow_cast && tensor.dtype() != first.dtype()) {
      throw DTypeError(fmt::format("gather: input tensor at index {} has dtype {}, but expected {}",
                                   i, name(tensor.dtype()), name(first.dtype())));
    }
    shape[dim] += tensor.size(dim);
  }
  return shape;
}

int gather_dim(const std::vector<Tensor>& tensors, int dim) {
  if (tensors.empty()) {
    throw InvalidArgument("gather: Expected at least one tensor to gather from");
  }
  require_defined("gather", tensors.front(), "input tensor at index 0");
  return checked_dim("gather", dim, tensors.front().dim());
}

void join(const std::vector<Tensor>& tensors, const Tensor& out, int dim) {
  warn_without_nccl("comm::gather", kOwnCopies);
  std::vector<ChunkCopy> plain;
  plain.reserve(tensors.size());
  const bool dense = out.is_cuda() && has_dense_ranges(out, dim);
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t first = begin;
    begin += tensor.size(dim);
    if (dense && is_plain(tensor, out, out.device())) {
      plain.push_back({tensor, out, Stream::current(tensor.device()), tensor.nbytes(), 0,
                       range_bytes(out, dim, first)});
      continue;
    }
    out.narrow(dim, first, tensor.size(dim)).copy_(tensor, {.non_blocking = true});
  }
  if (!plain.empty()) gather_chunks(Stream::current(out.device()), plain);
}

}  // namespace

Tensor gather(const std::vector<Tensor>& tensors, const GatherOptions& options) {
  const NamedCall named("gather");
  const int dim = gather_dim(tensors, options.dim);
  const Shape shape = joined_shape(tensors, dim, options.allow_cast);
  const Device destination = options.destination.value_or(Device::cuda()).resolved();
  if (destination.is_cuda()) join_capture(Stream::current(destination), tensors);
  const Tensor out = empty(
      shape,
      {.dtype = tensors.front().dtype(), .device = destination, .pinned = destination.is_cpu()});
  join(tensors, out, dim);
  return out;
}

void gather(const std::vector<Tensor>& tensors, Tensor& out, Dim dim, CastOptions options) {
  const NamedCall named("gather");
  const int axis = gather_dim(tensors, dim);
  const Shape shape = joined_shape(tensors, axis, options.allow_cast);
  require_defined("gather", out, "argument 'out'");
  require_writable("gather", std::span(&out, 1));
  if (out.sizes() != shape) {
    throw ShapeError(fmt::format("gather: Expected out tensor to have shape {}, but got {}",
                                 shape.str(), out.sizes().str()));
  }
  if (!options.allow_cast && out.dtype() != tensors.front().dtype()) {
    throw DTypeError(fmt::format("gather: expected out of dtype {}, but got {}",
                                 name(tensors.front().dtype()), name(out.dtype())));
  }
  join(tensors, out, axis);
}

void gather(const std::vector<Tensor>& tensors, Tensor& out, const PieceOptions& options) {
  const NamedCall named("gather");
  gather(tensors, out, options.dim, {.allow_cast = options.allow_cast});
}

}  // namespace gantry::comm
