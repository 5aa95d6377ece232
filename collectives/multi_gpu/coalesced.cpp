// broadcast_coalesced and reduce_add_coalesced: lists of tensors in few launches.
#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/batches.hpp"
#include "collectives/multi_gpu/buckets.hpp"
#include "collectives/multi_gpu/call.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/reduction.hpp"

// Note [Coalesced operations]
// broadcast_coalesced and reduce_add_coalesced do not pack: kernels read the tensors and write the
// outputs in place, and take their addresses as parameters. So a call costs one launch and two
// stream waits per device, for up to about a thousand tensors.
namespace gantry::comm {

namespace {

// Copy and reduction kernels use 16-byte accesses if all addresses are aligned.
constexpr std::size_t kAlignment = 16;

using Lists = std::vector<std::vector<Tensor>>;

void require_buffer(std::string_view op, const CoalesceOptions& options) {
  if (options.buffer_bytes != 0) return;
  throw InvalidArgument(fmt::format("{}: expected buffer_bytes > 0, but got 0", op));
}

// Checks the tensors, and returns the sum of their bytes.
std::size_t checked_bytes(std::string_view op, const std::vector<Tensor>& tensors, Device device) {
  require_defined(op, tensors, "tensor");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() != device) {
      throw DeviceMismatchError(
          fmt::format("{}: all tensors must be on devices[0] ({}), but tensor at index {} is on {}",
                      op, device.str(), i, tensors[i].device().str()),
          tensors[i].device().str());
    }
    bytes += tensors[i].nbytes();
  }
  return bytes;
}

// A broadcast_coalesced of contiguous tensors to devices but theirs.
class CoalescedBroadcast {
 public:
  CoalescedBroadcast(MultiDeviceCall& call, std::span<const Tensor> tensors)
      : call_(call), tensors_(tensors), cached_(call.root()), batches_(call.memory()) {}

  // `results` are the lists of the call's devices.
  void make_buffers(std::span<std::vector<Tensor>* const> results, std::size_t bytes);
  void make_tensors(std::span<std::vector<Tensor>* const> results);
  void run() { multicast(call_, batches_, {outputs_, tensors_}, &cached_); }

 private:
  MultiDeviceCall& call_;
  std::span<const Tensor> tensors_;
  CachedOutputs cached_;
  std::pmr::vector<MulticastBatch> batches_;
  std::vector<Tensor> outputs_;  // buffers, or the results themselves
};

void CoalescedBroadcast::make_buffers(std::span<std::vector<Tensor>* const> results,
                                      std::size_t bytes) {
  constexpr std::size_t kMost = kernels::kMaxMulticastCopies;
  for (const Bucket& bucket : make_buckets(tensors_, bytes, kAlignment)) {
    for (std::size_t d = 0; d < results.size(); ++d) {
      const Stream owner = Stream::current(call_.devices()[d]);
      const Tensor flat = cached_.make({bucket.elements}, bucket.dtype, owner);
      view_bucket(bucket, flat, tensors_, *results[d]);
      outputs_.push_back(flat);
      if (d % kMost != 0) {
        const Tensor& first = outputs_[outputs_.size() - 1 - d % kMost];
        batches_.back().shifts.push_back(static_cast<std::byte*>(flat.data()) -
                                         static_cast<std::byte*>(first.data()));
        continue;
      }
      MulticastBatch& batch = batches_.emplace_back(call_.memory());
      if (bucket.elements == 0) continue;
      batch.runs.reserve(bucket.members.size());
      for (std::size_t i = 0; i < bucket.members.size(); ++i) {
        const Tensor& member = tensors_[bucket.members[i]];
        batch.runs.push_back({member.data(), element(flat, bucket.offsets[i]), member.nbytes()});
      }
    }
  }
}

void CoalescedBroadcast::make_tensors(std::span<std::vector<Tensor>* const> results) {
  MulticastBatch& batch = batches_.emplace_back(call_.memory());
  batch.runs.reserve(tensors_.size() * results.size());
  outputs_.reserve(tensors_.size() * results.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    for (std::size_t d = 0; d < results.size(); ++d) {
      const Stream owner = Stream::current(call_.devices()[d]);
      Tensor& made = (*results[d])[i];
      made = cached_.make(tensors_[i].sizes(), tensors_[i].dtype(), owner);
      outputs_.push_back(made);
      batch.runs.push_back({tensors_[i].data(), made.data(), made.nbytes()});
    }
  }
}

}  // namespace

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<Tensor>& tensors,
                                                     const std::vector<Device>& devices,
                                                     std::size_t buffer_bytes) {
  return broadcast_coalesced(tensors, devices, CoalesceOptions{.buffer_bytes = buffer_bytes});
}

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<Tensor>& tensors,
                                                     const std::vector<Device>& devices,
                                                     const CoalesceOptions& options) {
  const NamedCall named("broadcast_coalesced");
  constexpr std::string_view kOp = "broadcast_coalesced";
  const std::vector<Device> resolved = checked_devices(kOp, devices);
  require_buffer(kOp, options);
  const std::size_t bytes = checked_bytes(kOp, tensors, resolved.front());
  Lists result(resolved.size());
  std::vector<Device> receivers;  // devices but the source
  std::vector<std::vector<Tensor>*> results;
  for (std::size_t d = 0; d < resolved.size(); ++d) {
    // A repeated devices[0] gets the inputs themselves, as in broadcast().
    if (resolved[d] == resolved[0]) {
      result[d] = tensors;
      continue;
    }
    result[d].resize(tensors.size());
    receivers.push_back(resolved[d]);
    results.push_back(&result[d]);
  }
  if (tensors.empty() || receivers.empty()) return result;
  MultiDeviceCall call(resolved.front(), receivers);
  if (!call.is_direct() || !call.is_open() || !are_open_to_peers(tensors) ||
      wants_nccl("comm::broadcast_coalesced", resolved, bytes, /*same_bits=*/false)) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<Tensor> copies = broadcast(tensors[i], resolved);
      for (std::size_t d = 0; d < resolved.size(); ++d) result[d][i] = copies[d];
    }
    return result;
  }
  std::vector<Tensor> copies;
  CoalescedBroadcast coalesced(call, contiguous_of(tensors, copies));
  if (options.separate_storages) {
    coalesced.make_tensors(results);
  } else {
    coalesced.make_buffers(results, options.buffer_bytes);
  }
  coalesced.run();
  return result;
}

namespace {

constexpr std::string_view kOp = "reduce_add_coalesced";

void require_lists(std::string_view op, const Lists& inputs, const CoalesceOptions& options) {
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

std::vector<Tensor> across_lists(const Lists& inputs, std::size_t i) {
  std::vector<Tensor> across;
  for (const std::vector<Tensor>& list : inputs) across.push_back(list[i]);
  return across;
}

// Throws for tensor i of list d, which does not fit the others.
[[noreturn]] void raise_invalid_input(const Lists& inputs, std::size_t d, std::size_t i,
                                      bool allow_cast) {
  const std::vector<Tensor> across = across_lists(inputs, i);
  require_device_tensors(kOp, across, "input");
  require_equal_shapes(kOp, across, "input");
  if (!allow_cast) require_alike(kOp, across, "input");
  const std::string device = inputs[d][i].device().str();
  throw DeviceMismatchError(
      fmt::format("{}: expected one device per list, but list {} has tensors on {} and {}", kOp, d,
                  inputs[d][0].device().str(), device),
      device);
}

// Checks hundreds of tensors per device in one pass, in memory order. Returns the devices of all
// lists that have tensors.
std::vector<Device> checked_lists(const Lists& inputs, const CoalesceOptions& options) {
  require_lists(kOp, inputs, options);
  struct Expected {
    const Shape* sizes;
    DType dtype;
  };
  std::vector<Expected> expected;
  expected.reserve(inputs.front().size());
  for (const Tensor& tensor : inputs.front()) {
    if (!tensor.defined()) raise_invalid_input(inputs, 0, expected.size(), options.allow_cast);
    expected.push_back({&tensor.sizes(), tensor.dtype()});
  }
  std::vector<Device> devices;
  devices.reserve(inputs.size());
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    for (std::size_t i = 0; i < inputs[d].size(); ++i) {
      const Tensor& tensor = inputs[d][i];
      if (i == 0 && tensor.defined() && tensor.is_cuda()) devices.push_back(tensor.device());
      if (!tensor.defined() || devices.empty() || tensor.device() != devices.back() ||
          tensor.sizes() != *expected[i].sizes ||
          (!options.allow_cast && tensor.dtype() != expected[i].dtype)) {
        raise_invalid_input(inputs, d, i, options.allow_cast);
      }
    }
  }
  return devices;
}

// Sums member m of all lists into to[m], in memory of `outputs`. Requires: are_direct().
void sum_into(MultiDeviceCall& call, const Lists& inputs, std::span<const Bucket> buckets,
              std::span<void* const> to, std::span<const Tensor> outputs, bool allow_cast) {
  const std::vector<Tensor>& shapes = inputs.front();
  Lists copies(inputs.size());
  std::vector<std::span<const Tensor>> lists;
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    if (!allow_cast) {
      lists.push_back(contiguous_of(inputs[d], copies[d]));
      continue;
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      copies[d].push_back(inputs[d][i].to(shapes[i].dtype()).contiguous());
    }
    lists.push_back(copies[d]);
  }
  std::pmr::vector<ReduceBatch> batches(call.memory());
  batches.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    ReduceBatch& batch = batches.emplace_back(bucket.dtype, call.memory());
    batch.runs.reserve(bucket.members.size());
    batch.inputs.reserve(bucket.members.size() * lists.size());
    for (const std::size_t member : bucket.members) {
      const std::int64_t count = shapes[member].numel();
      if (count == 0) continue;
      batch.runs.push_back({to[member], count});
      for (const auto& list : lists) batch.inputs.push_back(list[member].data());
    }
  }
  try {
    reduce_batches(call, batches, outputs, {kernels::NaryOp::sum, 1});
  } catch (...) {
    for (const auto& list : lists) call.keep(list);
    throw;
  }
}

// Sums into new tensors of the root, and copies these to pinned memory if `to_host`.
std::vector<Tensor> sum_lists(MultiDeviceCall& call, const Lists& inputs, bool to_host,
                              const CoalesceOptions& options) {
  const std::vector<Tensor>& shapes = inputs.front();
  call.join_capture();
  std::vector<Tensor> result(shapes.size());
  std::vector<Tensor> buffers;
  std::vector<void*> to(shapes.size());
  const std::vector<Bucket> buckets = make_buckets(shapes, options.buffer_bytes, kAlignment);
  for (const Bucket& bucket : buckets) {
    const TensorOptions made{.dtype = bucket.dtype, .device = call.root().device()};
    if (options.separate_storages) {
      for (const std::size_t member : bucket.members) {
        result[member] = empty(shapes[member].sizes(), made);
        to[member] = result[member].data();
      }
      continue;
    }
    const Tensor& flat = buffers.emplace_back(empty({bucket.elements}, made));
    if (!to_host) view_bucket(bucket, flat, shapes, result);
    for (std::size_t i = 0; i < bucket.members.size(); ++i) {
      to[bucket.members[i]] = element(flat, bucket.offsets[i]);
    }
  }
  sum_into(call, inputs, buckets, to, options.separate_storages ? result : buffers,
           options.allow_cast);
  if (to_host && options.separate_storages) {
    for (Tensor& sum : result) sum = sum.to(Device::cpu(), {.non_blocking = true});
  } else if (to_host) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      view_bucket(buckets[b], buffers[b].to(Device::cpu(), {.non_blocking = true}), shapes, result);
    }
  }
  return result;
}

// True if kernels on the root sum the lists, which are on the call's devices, in place. All memory
// that they access is open to peers.
bool are_direct(const MultiDeviceCall& call, const Lists& inputs) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : inputs.front()) bytes += tensor.nbytes();
  return call.is_direct() && call.is_open() && std::ranges::all_of(inputs, are_open_to_peers) &&
         std::ranges::all_of(
             inputs.front(),
             [&](const Tensor& tensor) { return fits_passes(tensor.dtype(), inputs.size()); }) &&
         !wants_nccl("comm::reduce_add_coalesced", call.devices(), bytes, /*same_bits=*/false);
}

void check_outputs(const Lists& inputs, std::span<const Tensor> out, bool allow_cast) {
  const std::vector<Tensor>& shapes = inputs.front();
  if (out.size() != shapes.size()) {
    throw InvalidArgument(
        fmt::format("{}: expected {} outputs, one per tensor of a list, but got {}", kOp,
                    shapes.size(), out.size()));
  }
  require_defined(kOp, out, "output tensor");
  for (std::size_t i = 0; i < out.size(); ++i) {
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
bool passes_read_outputs(const Lists& inputs, std::span<const Tensor> out) {
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
  MultiDeviceCall call(target.is_cpu() ? devices.front() : target, devices);
  if (are_direct(call, inputs)) return sum_lists(call, inputs, target.is_cpu(), options);
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
  if (are_written_in_place(inputs.front(), out) && !passes_read_outputs(inputs, out)) {
    MultiDeviceCall call(out.front().device(), devices);
    if (are_direct(call, inputs)) {
      call.join_capture();
      std::vector<void*> to;
      for (const Tensor& tensor : out) to.push_back(tensor.data());
      return sum_into(call, inputs, make_buckets(inputs.front(), options.buffer_bytes), to, out,
                      options.allow_cast);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    reduce_add(across_lists(inputs, i), out[i], {.allow_cast = options.allow_cast});
  }
}

template void reduce_add_coalesced<Tensor>(const std::vector<std::vector<Tensor>>&,
                                           std::span<Tensor>, const CoalesceOptions&);

}  // namespace gantry::comm
