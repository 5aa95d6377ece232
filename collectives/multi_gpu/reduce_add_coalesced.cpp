// Note [Coalesced operations]
#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/coalesced_operands.hpp"
#include "collectives/multi_gpu/device_reduce.hpp"
#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/reduction_passes.hpp"

namespace gantry::comm {

namespace {

constexpr std::string_view kOp = "reduce_add_coalesced";

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

// The contiguous elements of all inputs, in the dtypes of the first list.
struct SummedLists {
  std::vector<Device> sources;  // of the lists
  std::vector<Tensor> temporaries;
  std::vector<std::vector<const void*>> addresses;  // of each list
};

SummedLists summed_lists(const std::vector<std::vector<Tensor>>& inputs, bool allow_cast) {
  SummedLists lists;
  for (const std::vector<Tensor>& list : inputs) {
    lists.sources.push_back(list.front().device());
    std::vector<Tensor> converted;
    if (allow_cast) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        converted.push_back(list[i].to(inputs.front()[i].dtype()));
      }
    }
    lists.addresses.push_back(
        dense_addresses(converted.empty() ? list : converted, lists.temporaries));
    lists.temporaries.insert(lists.temporaries.end(), converted.begin(), converted.end());
  }
  return lists;
}

// Adds the sum of all lists' tensors `member`, of `count` elements, to a group.
void add_run(ReduceGroup& group, const SummedLists& lists, std::size_t member, void* out,
             std::int64_t count) {
  if (count == 0) return;
  group.runs.push_back({out, count});
  for (const auto& list : lists.addresses) group.inputs.push_back(list[member]);
}

// Runs the groups, which write to `outputs` on `target`.
void run_groups(Device target, std::span<const ReduceGroup> groups, const SummedLists& lists,
                std::span<const Tensor> outputs) {
  try {
    reduce_groups(target, groups, lists.sources, {kernels::NaryOp::sum, 1});
  } catch (...) {
    std::vector<Stream> users{Stream::current(target)};
    for (const Device device : lists.sources) add_stream(users, Stream::current(device));
    keep_after_failure(outputs, users);
    keep_after_failure(lists.temporaries, users);
    throw;
  }
}

void join_captures(Device target, const std::vector<std::vector<Tensor>>& inputs) {
  for (const std::vector<Tensor>& list : inputs) {
    join_capture(Stream::current(target), std::span(&list.front(), 1));
  }
}

// Sums onto a device that reaches all inputs, and copies to pinned memory if `to_host`.
std::vector<Tensor> sum_lists(const std::vector<std::vector<Tensor>>& inputs, Device target,
                              bool to_host, const CoalesceOptions& options) {
  const std::vector<Tensor>& shapes = inputs.front();
  join_captures(target, inputs);
  const SummedLists lists = summed_lists(inputs, options.allow_cast);
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
      void* const out =
          options.separate_storages ? result[member].data() : place_in(flat, padded.offsets[i]);
      add_run(group, lists, member, out, shapes[member].numel());
    }
  }
  run_groups(target, groups, lists, outputs);
  if (to_host && options.separate_storages) {
    for (Tensor& sum : result) sum = to_pinned(sum);
  } else if (to_host) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      view_bucket(buckets[b], to_pinned(outputs[b]), shapes, result);
    }
  }
  return result;
}

// Sums into contiguous tensors on one device that reaches all inputs.
void sum_lists_into(const std::vector<std::vector<Tensor>>& inputs, std::span<const Tensor> out,
                    const CoalesceOptions& options) {
  const Device target = out.front().device();
  join_captures(target, inputs);
  const SummedLists lists = summed_lists(inputs, options.allow_cast);
  std::vector<ReduceGroup> groups;
  for (const Bucket& bucket : make_buckets(inputs.front(), options.buffer_bytes)) {
    ReduceGroup& group = groups.emplace_back();
    group.dtype = bucket.dtype;
    for (const std::size_t member : bucket.members) {
      add_run(group, lists, member, out[member].data(), out[member].numel());
    }
  }
  run_groups(target, groups, lists, out);
}

// Checks the lists, and returns the devices of all that have tensors.
std::vector<Device> checked_lists(const std::vector<std::vector<Tensor>>& inputs,
                                  const CoalesceOptions& options) {
  require_lists(kOp, inputs, options);
  if (!are_summable(inputs, options.allow_cast)) {
    raise_invalid_inputs(kOp, inputs, options.allow_cast);
  }
  std::vector<Device> devices;
  for (const std::vector<Tensor>& list : inputs) {
    if (!list.empty()) devices.push_back(list.front().device());
  }
  return devices;
}

// True if kernels on `reducer` sum the lists in place, and write to memory that is open to peers.
bool are_direct(const std::vector<std::vector<Tensor>>& inputs, std::span<const Device> devices,
                Device reducer) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : inputs.front()) bytes += tensor.nbytes();
  return std::ranges::all_of(devices, [&](Device device) { return reaches(reducer, device); }) &&
         std::ranges::all_of(inputs, are_open_to_peers) &&
         std::ranges::all_of(
             inputs.front(),
             [&](const Tensor& tensor) { return fits_passes(tensor.dtype(), inputs.size()); }) &&
         is_new_memory_open(devices) && is_new_memory_open(std::span(&reducer, 1)) &&
         !wants_nccl("comm::reduce_add_coalesced", devices, bytes, /*same_bits=*/false);
}

std::vector<Tensor> across_lists(const std::vector<std::vector<Tensor>>& inputs, std::size_t i) {
  std::vector<Tensor> across;
  for (const std::vector<Tensor>& list : inputs) across.push_back(list[i]);
  return across;
}

void check_outputs(const std::vector<std::vector<Tensor>>& inputs, std::span<const Tensor> out,
                   bool allow_cast) {
  const std::vector<Tensor>& shapes = inputs.front();
  if (out.size() != shapes.size()) {
    throw InvalidArgument(
        fmt::format("{}: expected {} outputs, one per tensor of a list, but got {}", kOp,
                    shapes.size(), out.size()));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined())
      require_defined(kOp, out[i], fmt::format("output tensor at index {}", i));
    if (out[i].sizes() != shapes[i].sizes()) {
      throw ShapeError(fmt::format("{}: expected output {} of shape {}, but got {}", kOp, i,
                                   shapes[i].sizes().str(), out[i].sizes().str()),
                       out[i].device().str());
    }
    if (!allow_cast && out[i].dtype() != shapes[i].dtype()) {
      throw DTypeError(fmt::format("{}: expected output {} of dtype {}, but got {}", kOp, i,
                                   name(shapes[i].dtype()), name(out[i].dtype())),
                       out[i].device().str());
    }
  }
  require_writable(kOp, out);
  std::vector<Tensor> all;
  for (const std::vector<Tensor>& list : inputs) all.insert(all.end(), list.begin(), list.end());
  require_own_place(kOp, out, all);
}

// True if one kernel can write all outputs where they are.
bool are_written_in_place(const std::vector<Tensor>& shapes, std::span<const Tensor> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].is_cuda() || out[i].device() != out[0].device() || !out[i].is_contiguous() ||
        out[i].dtype() != shapes[i].dtype()) {
      return false;
    }
  }
  return are_open_to_peers(out);
}

// True if several passes would read inputs that the first one has overwritten.
bool passes_read_outputs(const std::vector<std::vector<Tensor>>& inputs,
                         std::span<const Tensor> out) {
  if (inputs.size() <= static_cast<std::size_t>(kernels::kMaxNaryInputs)) return false;
  return std::ranges::any_of(inputs, [&](const std::vector<Tensor>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].data() == out[i].data()) return true;
    }
    return false;
  });
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
  const NamedCall named("reduce_add_coalesced");
  const std::vector<Device> devices = checked_lists(inputs, options);
  const Device target = destination.value_or(Device::cuda()).resolved();
  const std::size_t count = inputs.front().size();
  if (count == 0) return {};
  const Device reducer = target.is_cpu() ? devices.front() : target;
  if (are_direct(inputs, devices, reducer)) {
    return sum_lists(inputs, reducer, target.is_cpu(), options);
  }
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<Tensor> across = across_lists(inputs, i);
    const Tensor sum = reduce_add(across, target, {.allow_cast = options.allow_cast});
    // The sum of one tensor is that tensor; here every result is new.
    result.push_back(sum.is_view_of(across.front()) ? sum.clone() : sum);
  }
  return result;
}

template <class T>
void reduce_add_coalesced(const std::vector<std::vector<Tensor>>& inputs,
                          std::span<std::type_identity_t<T>> out, const CoalesceOptions& options) {
  const NamedCall named("reduce_add_coalesced");
  const std::vector<Device> devices = checked_lists(inputs, options);
  check_outputs(inputs, out, options.allow_cast);
  if (out.empty()) return;
  if (are_written_in_place(inputs.front(), out) &&
      are_direct(inputs, devices, out.front().device()) && !passes_read_outputs(inputs, out)) {
    return sum_lists_into(inputs, out, options);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    reduce_add(across_lists(inputs, i), out[i], {.allow_cast = options.allow_cast});
  }
}

template void reduce_add_coalesced<Tensor>(const std::vector<std::vector<Tensor>>&,
                                           std::span<Tensor>, const CoalesceOptions&);

}  // namespace gantry::comm
