#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/coalesce.hpp"
#include "collectives/comm_checks.hpp"
#include "collectives/device_fold.hpp"
#include "collectives/nccl_clique.hpp"

namespace gantry::comm {

namespace {

// Sums checked inputs onto a device or, for the CPU, into pinned memory.
Tensor sum_onto(const std::vector<Tensor>& tensors, Device destination) {
  if (destination.is_cpu()) {
    const Tensor sum = sum_onto(tensors, tensors.front().device());
    Tensor host = empty(sum.sizes(), {.dtype = sum.dtype(), .device = destination, .pinned = true});
    host.copy_(sum, {.non_blocking = true});
    return host;
  }
  Tensor out =
      empty(tensors.front().sizes(), {.dtype = tensors.front().dtype(), .device = destination});
  if (out.numel() == 0) return out;
  std::vector<Tensor> dense;
  int root = -1;
  for (const Tensor& tensor : tensors) {
    if (tensor.device() == destination) root = static_cast<int>(dense.size());
    dense.push_back(tensor.contiguous());
  }
  // Integer sums have the same bits in any order.
  const bool same_bits =
      !is_floating_point(out.dtype()) && nccl_supports(ReduceOp::sum, out.dtype());
  if (root >= 0 && wants_nccl(devices_of(dense), out.nbytes(), same_bits)) {
    nccl_reduce(dense, out, root, ReduceOp::sum);
  } else {
    fold_onto(out, dense, {kernels::FoldOp::sum, 1});
  }
  return out;
}

Device checked_destination(std::optional<Device> destination) {
  return destination.value_or(Device::cuda()).resolved();
}

}  // namespace

Tensor reduce_add(const std::vector<Tensor>& tensors, std::optional<Device> destination) {
  require_device_tensors("reduce_add", tensors, "input");
  require_alike("reduce_add", tensors, "input");
  return sum_onto(tensors, checked_destination(destination));
}

std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination,
                                         std::size_t buffer_bytes) {
  constexpr std::string_view kOp = "reduce_add_coalesced";
  if (inputs.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one list, but got none", kOp));
  }
  if (buffer_bytes == 0) {
    throw InvalidArgument(fmt::format("{}: expected buffer_bytes > 0, but got 0", kOp));
  }
  const std::size_t length = inputs.front().size();
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    if (inputs[d].size() != length) {
      throw ShapeError(fmt::format(
          "{}: expected lists of equal length, but list {} has {} tensors and list 0 has {}", kOp,
          d, inputs[d].size(), length));
    }
  }
  for (std::size_t i = 0; i < length; ++i) {
    std::vector<Tensor> across;
    for (const std::vector<Tensor>& list : inputs) across.push_back(list[i]);
    require_device_tensors(kOp, across, "input");
    require_alike(kOp, across, "input");
  }
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    for (std::size_t i = 1; i < length; ++i) {
      if (inputs[d][i].device() == inputs[d][0].device()) continue;
      throw DeviceMismatchError(
          fmt::format("{}: expected one device per list, but list {} has tensors on {} and {}", kOp,
                      d, inputs[d][0].device().str(), inputs[d][i].device().str()),
          inputs[d][i].device().str());
    }
  }
  const Device target = checked_destination(destination);
  std::vector<Tensor> result(length);
  for (const Bucket& bucket : make_buckets(inputs.front(), buffer_bytes)) {
    std::vector<Tensor> flats;
    for (const std::vector<Tensor>& list : inputs) {
      flats.push_back(bucket.members.size() == 1 ? list[bucket.members.front()]
                                                 : flatten_bucket(bucket, list));
    }
    const Tensor sum = sum_onto(flats, target);
    const std::vector<Tensor> views = bucket.members.size() == 1
                                          ? std::vector<Tensor>{sum}
                                          : views_of_bucket(bucket, sum, inputs.front());
    for (std::size_t i = 0; i < views.size(); ++i) result[bucket.members[i]] = views[i];
  }
  return result;
}

}  // namespace gantry::comm
