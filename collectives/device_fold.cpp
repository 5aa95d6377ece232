#include "collectives/device_fold.hpp"

#include <cstddef>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/comm_checks.hpp"
#include "collectives/partition.hpp"
#include "collectives/peer_reach.hpp"

namespace gantry {

namespace {

// From this size on one device's link is the bottleneck, and sharing the fold among the inputs'
// devices pays for its events.
constexpr std::size_t kSharedFoldBytes = std::size_t{4} << 20;

std::byte* element(const Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.data()) +
         static_cast<std::size_t>(index) * tensor.element_size();
}

// Folds one part of all inputs on `device`, whose stream was ordered after theirs.
void fold_part(Device device, void* out, std::span<const Tensor> inputs, Part part,
               const Folding& how) {
  if (part.count == 0) return;
  std::vector<const void*> addresses;
  for (const Tensor& input : inputs) addresses.push_back(element(input, part.begin));
  kernels::fold(kernels::Target::on(Stream::current(device)), how.op, out, addresses, part.count,
                inputs.front().dtype(), how.divisor);
}

void copy_part(const Tensor& to, std::int64_t to_index, const Tensor& from, std::int64_t from_index,
               std::int64_t count, const Stream& stream) {
  if (count == 0) return;
  driver().copy_peer(element(to, to_index), to.device().index, element(from, from_index),
                     from.device().index, static_cast<std::size_t>(count) * to.element_size(),
                     stream.native());
}

bool all_reach(std::span<const Tensor> tensors) {
  for (const Tensor& a : tensors) {
    for (const Tensor& b : tensors) {
      if (!reaches(a.device(), b.device())) return false;
    }
  }
  return true;
}

bool distinct(std::span<const Tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (tensors[i].device() == tensors[j].device()) return false;
    }
  }
  return true;
}

// Input i's device folds part i; `out`'s device collects the parts.
void fold_shared(const Tensor& out, std::span<const Tensor> inputs, const Folding& how) {
  std::vector<Device> devices = comm::devices_of(inputs);
  const auto count = static_cast<int>(inputs.size());
  bool destination_is_input = false;
  for (const Device device : devices) destination_is_input |= device == out.device();
  if (!destination_is_input) devices.push_back(out.device());
  order_all(devices);
  std::vector<Tensor> parts;
  for (int i = 0; i < count; ++i) {
    const Tensor& input = inputs[static_cast<std::size_t>(i)];
    const Part part = partition(out.numel(), count, i);
    if (input.device() == out.device()) {
      fold_part(input.device(), element(out, part.begin), inputs, part, how);
      continue;
    }
    const Tensor folded = empty({part.count}, {.dtype = out.dtype(), .device = input.device()});
    fold_part(input.device(), folded.data(), inputs, part, how);
    parts.push_back(folded);
  }
  std::size_t next = 0;
  for (int i = 0; i < count; ++i) {
    if (inputs[static_cast<std::size_t>(i)].device() == out.device()) continue;
    const Part part = partition(out.numel(), count, i);
    const Tensor& folded = parts[next++];
    // Pushed on the owner's stream: the links into the destination work side by side.
    copy_part(out, part.begin, folded, 0, part.count, Stream::current(folded.device()));
  }
  order_all(devices);
}

}  // namespace

void fold_onto(const Tensor& out, std::span<const Tensor> inputs, const Folding& how) {
  if (inputs.size() > static_cast<std::size_t>(kernels::kMaxFoldInputs)) {
    throw InvalidArgument("reduce: expected at most " + std::to_string(kernels::kMaxFoldInputs) +
                          " inputs, but got " + std::to_string(inputs.size()));
  }
  if (out.nbytes() >= kSharedFoldBytes && inputs.size() > 2 && distinct(inputs) &&
      all_reach(inputs)) {
    fold_shared(out, inputs, how);
    return;
  }
  std::vector<Tensor> reachable;
  for (const Tensor& input : inputs) {
    if (reaches(out.device(), input.device())) {
      order_after(out.device(), input.device());
      reachable.push_back(input);
    } else {
      reachable.push_back(input.to(out.device()));
    }
  }
  fold_part(out.device(), out.data(), reachable, {0, out.numel()}, how);
  for (const Tensor& input : inputs) order_after(input.device(), out.device());
}

void fold_into_all(std::span<const Tensor> tensors, const Folding& how) {
  const Tensor& first = tensors.front();
  if (first.numel() == 0) return;
  const auto count = static_cast<int>(tensors.size());
  const std::vector<Device> devices = comm::devices_of(tensors);
  if (first.nbytes() < kSharedFoldBytes || count < 3 || !all_reach(tensors)) {
    fold_onto(first, tensors, how);
    for (const Tensor& tensor : tensors.subspan(1)) Tensor(tensor).copy_(first);
    return;
  }
  // Part i is folded in place by its owner, the only one that reads it from all, and then fetched
  // by the others.
  order_all(devices);
  for (int i = 0; i < count; ++i) {
    const Tensor& owner = tensors[static_cast<std::size_t>(i)];
    const Part part = partition(first.numel(), count, i);
    fold_part(owner.device(), element(owner, part.begin), tensors, part, how);
  }
  order_all(devices);
  for (int i = 0; i < count; ++i) {
    const Tensor& reader = tensors[static_cast<std::size_t>(i)];
    for (int step = 1; step < count; ++step) {
      const int owner = (i + step) % count;
      const Part part = partition(first.numel(), count, owner);
      copy_part(reader, part.begin, tensors[static_cast<std::size_t>(owner)], part.begin,
                part.count, Stream::current(reader.device()));
    }
  }
  order_all(devices);
}

}  // namespace gantry
