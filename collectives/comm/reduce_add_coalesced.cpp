// Note [Coalesced operations]
#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/comm/checks.hpp"
#include "collectives/comm/coalesced_operands.hpp"
#include "collectives/comm/device_reduce.hpp"
#include "collectives/comm/multicast.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::comm {

namespace {

void require_lists(std::string_view op, const std::vector<std::vector<Tensor>>& inputs,
                   const CoalesceOptions& options) {
  if (inputs.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one list, but got none", op));
  }
  require_buffer(op, options);
  const std::size_t length = inputs.front().size();
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    if (inputs[d].size() == length) continue;
    throw ShapeError(fmt::format(
        "{}: expected lists of equal length, but list {} has {} tensors and list 0 has {}", op, d,
        inputs[d].size(), length));
  }
}

// Checks hundreds of tensors per device in one pass, in memory order. raise_invalid_inputs() makes
// the error texts.
bool are_summable(const std::vector<std::vector<Tensor>>& inputs, bool allow_cast) {
  struct Expected {
    const Shape* sizes;
    DType dtype;
  };
  std::vector<Expected> expected;
  expected.reserve(inputs.front().size());
  for (const Tensor& tensor : inputs.front()) {
    if (!tensor.defined()) return false;
    expected.push_back({&tensor.sizes(), tensor.dtype()});
  }
  for (const std::vector<Tensor>& list : inputs) {
    if (list.empty()) continue;
    if (!list.front().defined() || !list.front().is_cuda()) return false;
    const Device device = list.front().device();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Tensor& tensor = list[i];
      if (!tensor.defined() || tensor.device() != device || tensor.sizes() != *expected[i].sizes ||
          (!allow_cast && tensor.dtype() != expected[i].dtype)) {
        return false;
      }
    }
  }
  return true;
}

void raise_invalid_inputs(std::string_view op, const std::vector<std::vector<Tensor>>& inputs,
                          bool allow_cast) {
  for (std::size_t i = 0; i < inputs.front().size(); ++i) {
    std::vector<Tensor> across;
    for (const std::vector<Tensor>& list : inputs) across.push_back(list[i]);
    require_device_tensors(op, across, "input");
    require_equal_shapes(op, across, "input");
    if (!allow_cast) require_alike(op, across, "input");
  }
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    for (std::size_t i = 1; i < inputs[d].size(); ++i) {
      if (inputs[d][i].device() == inputs[d][0].device()) continue;
      throw DeviceMismatchError(
          fmt::format("{}: expected one device per list, but list {} has tensors on {} and {}", op,
                      d, inputs[d][0].device().str(), inputs[d][i].device().str()),
          inputs[d][i].device().str());
    }
  }
}

Tensor to_pinned(const Tensor& tensor) {
  Tensor host =
      empty(tensor.sizes(), {.dtype = tensor.dtype(), .device = Device::cpu(), .pinned = true});
  host.copy_(tensor, {.non_blocking = true});
  return host;
}

// Sums onto a device that reaches all inputs, and copies to pinned memory if `to_host`.
std::vector<Tensor> sum_lists(const std::vector<std::vector<Tensor>>& inputs, Device target,
                              bool to_host, const CoalesceOptions& options) {
  const std::vector<Tensor>& shapes = inputs.front();
  for (const std::vector<Tensor>& list : inputs) {
    join_capture(Stream::current(target), std::span(&list.front(), 1));
  }
  std::vector<Device> sources;
  std::vector<Tensor> temporaries;
  std::vector<std::vector<const void*>> addresses;
  for (const std::vector<Tensor>& list : inputs) {
    sources.push_back(list.front().device());
    std::vector<Tensor> converted;
    if (options.allow_cast) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        converted.push_back(list[i].to(shapes[i].dtype()));
      }
    }
    addresses.push_back(dense_addresses(converted.empty() ? list : converted, temporaries));
    temporaries.insert(temporaries.end(), converted.begin(), converted.end());
  }
  std::vector<Tensor> result(shapes.size());
  std::vector<Tensor> outputs;
  std::vector<ReduceGroup> groups;
  const std::vector<PaddedBucket> buckets = padded_buckets(shapes, options);
  for (const PaddedBucket& padded : buckets) {
    const DType dtype = padded.bucket.dtype;
    ReduceGroup& group = groups.emplace_back();
    group.dtype = dtype;
    group.runs.reserve(padded.offsets.size());
    group.inputs.reserve(padded.offsets.size() * inputs.size());
    Tensor flat;
    if (!options.separate_storages) {
      flat = empty({padded.elements}, {.dtype = dtype, .device = target});
      outputs.push_back(flat);
      if (!to_host) view_bucket(padded, flat, shapes, result);
    }
    for (std::size_t i = 0; i < padded.offsets.size(); ++i) {
      const std::size_t member = padded.bucket.members[i];
      if (options.separate_storages) {
        result[member] = empty(shapes[member].sizes(), {.dtype = dtype, .device = target});
        outputs.push_back(result[member]);
      }
      if (shapes[member].numel() == 0) continue;
      void* const out =
          options.separate_storages ? result[member].data() : place_in(flat, padded.offsets[i]);
      group.runs.push_back({out, shapes[member].numel()});
      for (const auto& list : addresses) group.inputs.push_back(list[member]);
    }
  }
  try {
    reduce_groups(target, groups, sources, {kernels::NaryOp::sum, 1});
  } catch (...) {
    std::vector<Stream> users{Stream::current(target)};
    for (const Device device : sources) add_stream(users, Stream::current(device));
    keep_after_failure(outputs, users);
    keep_after_failure(temporaries, users);
    throw;
  }
  if (to_host && options.separate_storages) {
    for (Tensor& sum : result) sum = to_pinned(sum);
  } else if (to_host) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      view_bucket(buckets[b], to_pinned(outputs[b]), shapes, result);
    }
  }
  return result;
}

}  // namespace

std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination,
                                         std::size_t buffer_bytes) {
  return reduce_add_coalesced(inputs, destination, CoalesceOptions{.buffer_bytes = buffer_bytes});
}

std::vector<Tensor> reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                                         std::optional<Device> destination,
                                         const CoalesceOptions& options) {
  const sanitizer::OperationName named("reduce_add_coalesced");
  constexpr std::string_view kOp = "reduce_add_coalesced";
  require_lists(kOp, inputs, options);
  if (!are_summable(inputs, options.allow_cast))
    raise_invalid_inputs(kOp, inputs, options.allow_cast);
  const Device target = destination.value_or(Device::cuda()).resolved();
  const std::vector<Tensor>& shapes = inputs.front();
  if (shapes.empty()) return {};
  std::vector<Device> devices;
  std::size_t bytes = 0;
  for (const std::vector<Tensor>& list : inputs) devices.push_back(list.front().device());
  for (const Tensor& tensor : shapes) bytes += tensor.nbytes();
  const Device reducer = target.is_cpu() ? devices.front() : target;
  const bool direct =
      std::ranges::all_of(devices, [&](Device device) { return reaches(reducer, device); }) &&
      std::ranges::all_of(inputs, are_open_to_peers) && is_new_memory_open(devices) &&
      is_new_memory_open(std::span(&reducer, 1));
  if (!direct || wants_nccl("comm::reduce_add_coalesced", devices, bytes, /*same_bits=*/false)) {
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::vector<Tensor> across;
      for (const std::vector<Tensor>& list : inputs) across.push_back(list[i]);
      const Tensor sum = reduce_add(across, target, {.allow_cast = options.allow_cast});
      // The sum of one tensor is that tensor; here every result is new.
      result.push_back(sum.is_view_of(across.front()) ? sum.clone() : sum);
    }
    return result;
  }
  return sum_lists(inputs, reducer, target.is_cpu(), options);
}

}  // namespace gantry::comm
