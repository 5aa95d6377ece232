#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/ignored_choice.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/device_reduce.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry::comm {

namespace {

// Sums checked inputs into a contiguous device tensor, with conversions to its dtype.
void sum_into(const std::vector<Tensor>& tensors, const Tensor& out) {
  if (out.numel() == 0) return;
  std::vector<Tensor> dense;
  dense.reserve(tensors.size());
  int root = -1;
  bool reach = true;
  for (const Tensor& tensor : tensors) {
    if (tensor.device() == out.device()) root = static_cast<int>(dense.size());
    reach = reach && reaches(out.device(), tensor);
    const bool plain = tensor.dtype() == out.dtype() && tensor.is_contiguous();
    dense.push_back(plain ? tensor : tensor.to(out.dtype()).contiguous());
  }
  // Integer sums have the same bits in any order. Between peers reduce_into() is as fast as NCCL's
  // ring.
  const bool prefers_nccl =
      !reach && !is_floating_point(out.dtype()) && nccl_supports(ReduceOp::sum, out.dtype());
  bool nccl = wants_nccl("comm::reduce_add", devices_of(dense), out.nbytes(), prefers_nccl);
  if (nccl && (root < 0 || !nccl_supports(ReduceOp::sum, out.dtype()))) {
    warn_without_nccl("comm::reduce_add",
                      root < 0 ? "no input is on the destination" : "NCCL does not know the dtype");
    nccl = false;
  }
  if (nccl) {
    nccl_reduce(dense, out, root, ReduceOp::sum);
  } else {
    reduce_into(out, dense, {kernels::NaryOp::sum, 1});
  }
}

// Sums checked inputs onto a device or, for the CPU, into pinned memory.
Tensor sum_onto(const std::vector<Tensor>& tensors, Device destination) {
  if (destination.is_cpu()) {
    const Tensor sum = sum_onto(tensors, tensors.front().device());
    Tensor host = empty(sum.sizes(), {.dtype = sum.dtype(), .device = destination, .pinned = true});
    host.copy_(sum, {.non_blocking = true});
    return host;
  }
  join_capture(Stream::current(destination), tensors);
  const Tensor out =
      empty(tensors.front().sizes(), {.dtype = tensors.front().dtype(), .device = destination});
  sum_into(tensors, out);
  return out;
}

void check_output(const std::vector<Tensor>& tensors, const Tensor& out, CastOptions options) {
  const Tensor& first = tensors.front();
  require_defined("reduce_add", out, "argument 'out'");
  require_writable("reduce_add", std::span(&out, 1));
  if (out.sizes() != first.sizes()) {
    throw ShapeError(fmt::format("reduce_add: Expected out tensor to have shape {}, but got {}",
                                 first.sizes().str(), out.sizes().str()),
                     out.device().str());
  }
  if (!options.allow_cast && out.dtype() != first.dtype()) {
    throw DTypeError(fmt::format("reduce_add: expected out of dtype {}, but got {}",
                                 name(first.dtype()), name(out.dtype())),
                     out.device().str());
  }
  require_own_place("reduce_add", std::span(&out, 1), tensors);
}

void check_inputs(const std::vector<Tensor>& tensors, CastOptions options) {
  if (tensors.empty()) {
    throw InvalidArgument("reduce_add: Expected at least one input tensor, but got none");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (!tensor.defined()) {
      require_defined("reduce_add", tensor, fmt::format("input tensor at index {}", i));
    }
    if (!tensor.is_cuda()) {
      throw InvalidArgument(
          fmt::format("reduce_add expects all inputs to be on GPUs, but input {} is on {}", i,
                      tensor.device().str()),
          tensor.device().str());
    }
    if (tensor.sizes() != tensors.front().sizes()) {
      throw ShapeError(fmt::format("reduce_add: input {} has invalid size: got {}, but expected {}",
                                   i, tensor.sizes().str_x(), tensors.front().sizes().str_x()),
                       tensor.device().str());
    }
  }
  if (!options.allow_cast) require_alike("reduce_add", tensors, "input");
}

}  // namespace

Tensor reduce_add(const std::vector<Tensor>& tensors, std::optional<Device> destination,
                  CastOptions options) {
  const NamedCall named("reduce_add");
  check_inputs(tensors, options);
  const Device target = destination.value_or(Device::cuda()).resolved();
  if (tensors.size() == 1 && tensors.front().device() == target) return tensors.front();
  return sum_onto(tensors, target);
}

void reduce_add(const std::vector<Tensor>& tensors, Tensor& out, CastOptions options) {
  const NamedCall named("reduce_add");
  check_inputs(tensors, options);
  check_output(tensors, out, options);
  const Device device = out.is_cpu() ? tensors.front().device() : out.device();
  join_capture(Stream::current(device), tensors);
  if (out.is_cuda() && out.is_contiguous() && out.dtype() == tensors.front().dtype()) {
    sum_into(tensors, out);
  } else {
    out.copy_(sum_onto(tensors, device), {.non_blocking = true});
  }
}

}  // namespace gantry::comm
