#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/coalesce.hpp"
#include "collectives/comm_checks.hpp"
#include "collectives/nccl_clique.hpp"
#include "collectives/partition.hpp"
#include "collectives/peer_reach.hpp"

namespace gantry::comm {

namespace {

// From this size on the source's link is the bottleneck of direct copies, and passing parts on
// between the receivers pays for its events.
constexpr std::size_t kTwoStepBytes = std::size_t{8} << 20;

bool can_pass_on(const Tensor& source, std::span<const Tensor> out) {
  if (out.size() < 3 || source.nbytes() < kTwoStepBytes) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].is_contiguous() || out[i].device() == source.device()) return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (out[i].device() == out[j].device() || !reaches(out[i].device(), out[j].device())) {
        return false;
      }
    }
  }
  return true;
}

void copy_part(const Tensor& to, const Tensor& from, Part part, const Stream& stream) {
  if (part.count == 0) return;
  const std::size_t width = to.element_size();
  const std::size_t offset = static_cast<std::size_t>(part.begin) * width;
  driver().copy_peer(static_cast<std::byte*>(to.data()) + offset, to.device().index,
                     static_cast<const std::byte*>(from.data()) + offset, from.device().index,
                     static_cast<std::size_t>(part.count) * width, stream.native());
}

// Sends part i to receiver i, which passes it on to the others: every link carries the data about
// once, in two steps.
void broadcast_in_parts(const Tensor& source, std::span<const Tensor> out) {
  const Stream from = Stream::current(source.device());
  const auto count = static_cast<int>(out.size());
  for (const Tensor& receiver : out) order_after(source.device(), receiver.device());
  std::vector<Event> arrived;
  for (int i = 0; i < count; ++i) {
    copy_part(out[static_cast<std::size_t>(i)], source, partition(source.numel(), count, i), from);
    arrived.push_back(from.record());
  }
  std::vector<Event> complete;
  for (int i = 0; i < count; ++i) {
    const Tensor& receiver = out[static_cast<std::size_t>(i)];
    const Stream stream = Stream::current(receiver.device());
    for (int step = 0; step < count; ++step) {
      // Receivers begin with different senders, so that no link serves all at once.
      const int sender = (i + step) % count;
      stream.wait(arrived[static_cast<std::size_t>(sender)]);
      if (sender == i) continue;
      copy_part(receiver, out[static_cast<std::size_t>(sender)],
                partition(source.numel(), count, sender), stream);
    }
    complete.push_back(stream.record());
  }
  // A receiver's later writes must not overtake the others' reads of the part it passes on.
  for (int i = 0; i < count; ++i) {
    const Stream stream = Stream::current(out[static_cast<std::size_t>(i)].device());
    for (int j = 0; j < count; ++j) {
      if (i != j) stream.wait(complete[static_cast<std::size_t>(j)]);
    }
  }
}

// Fills every tensor of `out` (device tensors of the source's shape and dtype).
void fill_from(const Tensor& tensor, std::vector<Tensor> out) {
  if (out.empty() || tensor.numel() == 0) return;
  if (tensor.is_cpu()) {
    // One trip over the host's link, then between devices.
    out.front().copy_(tensor);
    const Tensor first = out.front();
    out.erase(out.begin());
    fill_from(first, std::move(out));
    return;
  }
  const Tensor source = tensor.contiguous();
  std::vector<Device> devices{source.device()};
  bool dense = true;
  for (const Tensor& receiver : out) {
    devices.push_back(receiver.device());
    dense = dense && receiver.is_contiguous();
  }
  if (dense && wants_nccl(devices, source.nbytes(), /*same_bits=*/true)) {
    std::vector<Tensor> ring{source};
    ring.insert(ring.end(), out.begin(), out.end());
    nccl_broadcast(ring, 0);
  } else if (can_pass_on(source, out)) {
    broadcast_in_parts(source, out);
  } else {
    for (Tensor& receiver : out) receiver.copy_(source);
  }
}

}  // namespace

std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices) {
  require_defined("broadcast", tensor, "argument 'tensor'");
  std::vector<Tensor> result;
  std::vector<Tensor> receivers;
  for (const Device device : checked_devices("broadcast", devices)) {
    if (device == tensor.device()) {
      result.push_back(tensor);
      continue;
    }
    result.push_back(empty(tensor.sizes(), {.dtype = tensor.dtype(), .device = device}));
    receivers.push_back(result.back());
  }
  fill_from(tensor, std::move(receivers));
  return result;
}

void broadcast(const Tensor& tensor, std::span<Tensor> out) {
  require_defined("broadcast", tensor, "argument 'tensor'");
  require_device_tensors("broadcast", out, "output");
  require_writable("broadcast", out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].sizes() != tensor.sizes()) {
      throw ShapeError(fmt::format(
          "broadcast: Expected all output tensors to have same shape as the source tensor {}, but "
          "output tensor at index {} has shape {}",
          tensor.sizes().str(), i, out[i].sizes().str()));
    }
    if (out[i].dtype() != tensor.dtype()) {
      throw DTypeError(fmt::format(
          "broadcast: expected output tensors of the source's dtype {}, but output tensor at index "
          "{} has dtype {}",
          name(tensor.dtype()), i, name(out[i].dtype())));
    }
  }
  std::vector<Tensor> receivers;
  for (const Tensor& tensor_out : out) {
    if (tensor_out.data() != tensor.data() || tensor_out.strides() != tensor.strides()) {
      receivers.push_back(tensor_out);
    }
  }
  fill_from(tensor, std::move(receivers));
}

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<Tensor>& tensors,
                                                     const std::vector<Device>& devices,
                                                     std::size_t buffer_bytes) {
  const std::vector<Device> resolved = checked_devices("broadcast_coalesced", devices);
  if (buffer_bytes == 0) {
    throw InvalidArgument("broadcast_coalesced: expected buffer_bytes > 0, but got 0");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_defined("broadcast_coalesced", tensors[i], fmt::format("tensor at index {}", i));
    if (tensors[i].device() != resolved.front()) {
      throw DeviceMismatchError(
          fmt::format("broadcast_coalesced: all tensors must be on devices[0] ({}), but tensor at "
                      "index {} is on {}",
                      resolved.front().str(), i, tensors[i].device().str()),
          tensors[i].device().str());
    }
  }
  std::vector<std::vector<Tensor>> result(resolved.size());
  for (std::vector<Tensor>& list : result) list.resize(tensors.size());
  result[0] = tensors;
  for (const Bucket& bucket : make_buckets(tensors, buffer_bytes)) {
    const bool alone = bucket.members.size() == 1;
    const Tensor flat = alone ? tensors[bucket.members.front()] : flatten_bucket(bucket, tensors);
    const std::vector<Tensor> copies = broadcast(flat, resolved);
    for (std::size_t d = 1; d < resolved.size(); ++d) {
      // A repeated devices[0] gets the inputs themselves, as broadcast gives them.
      if (resolved[d] == resolved[0]) {
        for (const std::size_t member : bucket.members) result[d][member] = tensors[member];
        continue;
      }
      const std::vector<Tensor> views =
          alone ? std::vector<Tensor>{copies[d]} : views_of_bucket(bucket, copies[d], tensors);
      for (std::size_t i = 0; i < views.size(); ++i) result[d][bucket.members[i]] = views[i];
    }
  }
  return result;
}

}  // namespace gantry::comm
