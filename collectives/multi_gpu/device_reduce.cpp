#include "collectives/multi_gpu/device_reduce.hpp"

#include <algorithm>
#include <cstddef>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/tuning.hpp"
#include "collectives/partition.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/reduction_passes.hpp"

namespace gantry {

namespace {

constexpr auto kMostInputs = static_cast<std::size_t>(kernels::kMaxNaryInputs);

std::byte* element(const Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.data()) +
         static_cast<std::size_t>(index) * tensor.element_size();
}

// Reduces one part of all inputs on `device` into the same part of every output; of one, if there
// are more inputs than a kernel takes. The device's stream was ordered after the inputs' streams.
void reduce_part(Device device, std::span<const Tensor> outs, std::span<const Tensor> inputs,
                 Part part, const Reduction& how) {
  if (part.count == 0) return;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Tensor& input : inputs) from.push_back(element(input, part.begin));
  for (const Tensor& out : outs) to.push_back(element(out, part.begin));
  const auto target = kernels::Target::on(Stream::current(device));
  const DType dtype = inputs.front().dtype();
  if (to.size() == 1) {
    return reduce_in_passes(target, how, to.front(), from, part.count, dtype);
  }
  kernels::nary(target, how.op, std::span<void* const>(to), from, part.count, dtype, how.divisor);
}

// Reduces inputs of 16 bits in f32, chunk by chunk. `out` may be one of the inputs.
void reduce_widened(const Tensor& out, std::span<const Tensor> inputs, const Reduction& how) {
  constexpr std::int64_t kRows = kernels::kMaxNaryInputs;
  constexpr std::int64_t kMostElements = (std::int64_t{64} << 20) / (kRows * 4);
  const auto target = kernels::Target::on(Stream::current(out.device()));
  const auto chunk_of = [](const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return tensor.view({tensor.numel()}).narrow(0, begin, count);
  };
  const std::int64_t most = std::min(kMostElements, out.numel());
  // Row 0 also holds the partial result.
  const Tensor wide = empty({kRows, most}, {.dtype = DType::f32, .device = out.device()});
  for (std::int64_t begin = 0; begin < out.numel(); begin += most) {
    const std::int64_t count = std::min(most, out.numel() - begin);
    const Tensor sum = wide.select(0, 0).narrow(0, 0, count);
    std::vector<const void*> rows;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor row = wide.select(0, static_cast<std::int64_t>(rows.size())).narrow(0, 0, count);
      row.copy_(chunk_of(inputs[i], begin, count));
      rows.push_back(row.data());
      const bool is_last = i + 1 == inputs.size();
      if (!is_last && rows.size() < static_cast<std::size_t>(kRows)) continue;
      kernels::nary(target, how.op, sum.data(), rows, count, DType::f32, is_last ? how.divisor : 1);
      rows = {sum.data()};
    }
    chunk_of(out, begin, count).copy_(sum);
  }
}

// True if a pass after the first one would read an input that is overwritten by then.
bool is_late_input(const Tensor& out, std::span<const Tensor> inputs) {
  const std::size_t first = std::min(inputs.size(), kMostInputs);
  return std::ranges::any_of(inputs.subspan(first),
                             [&](const Tensor& input) { return input.data() == out.data(); });
}

std::vector<Device> distinct(std::span<const Device> devices) {
  std::vector<Device> result;
  for (const Device device : devices) {
    if (std::find(result.begin(), result.end(), device) == result.end()) result.push_back(device);
  }
  return result;
}

bool all_reach(std::span<const Device> from, std::span<const Device> to) {
  return std::all_of(from.begin(), from.end(), [&](Device a) {
    return std::all_of(to.begin(), to.end(), [&](Device b) { return reaches(a, b); });
  });
}

// Returns the helper devices of a reduction of `sources` onto `destination`, all peer-accessible.
// None if the destination is faster alone. See Note [Helper devices].
std::vector<Device> helpers_for(Device destination, std::span<const Device> sources,
                                std::size_t bytes) {
  if (bytes < comm_tuning().helper_bytes) return {};
  std::vector<Device> helpers = distinct(sources);
  std::vector<Device> ends = helpers;
  ends.push_back(destination);
  std::erase(helpers, destination);
  if (helpers.size() < 2 || !all_reach(helpers, ends)) return {};
  return helpers;
}

std::vector<Stream> streams_of(Device first, std::span<const Device> devices) {
  std::vector<Stream> streams{Stream::current(first)};
  for (const Device device : devices) add_stream(streams, Stream::current(device));
  return streams;
}

constexpr std::int64_t kCutGrain = 16;

// Returns about elements [part.begin, part.begin + part.count) of the concatenated runs. Adjacent
// parts give adjacent slices.
ReduceGroup slice(const ReduceGroup& group, Part part) {
  const std::size_t each = group.inputs.size() / group.runs.size();
  const auto width = static_cast<std::int64_t>(element_size(group.dtype));
  ReduceGroup result{.dtype = group.dtype, .runs = {}, .inputs = {}};
  std::int64_t place = 0;
  for (std::size_t r = 0; r < group.runs.size(); ++r) {
    const kernels::NaryItem& run = group.runs[r];
    // A cut inside a run keeps the alignment of the run.
    const auto cut_at = [&](std::int64_t element) {
      if (element <= place) return std::int64_t{0};
      if (element >= place + run.count) return run.count;
      return (element - place) / kCutGrain * kCutGrain;
    };
    const std::int64_t begin = cut_at(part.begin);
    const std::int64_t end = cut_at(part.begin + part.count);
    place += run.count;
    if (begin >= end) continue;
    const std::int64_t skipped = begin * width;
    result.runs.push_back({static_cast<std::byte*>(run.out) + skipped, end - begin});
    for (std::size_t k = 0; k < each; ++k) {
      result.inputs.push_back(static_cast<const std::byte*>(group.inputs[r * each + k]) + skipped);
    }
  }
  return result;
}

void reduce_on(Device device, const ReduceGroup& group, const Reduction& how) {
  reduce_items_in_passes(kernels::Target::on(Stream::current(device)), how, group.runs,
                         group.inputs, group.dtype);
}

}  // namespace

std::int64_t ReduceGroup::elements() const {
  std::int64_t sum = 0;
  for (const kernels::NaryItem& run : runs) sum += run.count;
  return sum;
}

void reduce_into(const Tensor& out, std::span<const Tensor> inputs, const Reduction& how) {
  if (out.numel() == 0) return;
  if (!fits_passes(out.dtype(), inputs.size())) return reduce_widened(out, inputs, how);
  if (is_late_input(out, inputs)) {
    const Tensor result = out.new_empty(out.sizes());
    reduce_into(result, inputs, how);
    Tensor(out).copy_(result);
    return;
  }
  std::vector<Tensor> reachable;
  reachable.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    reachable.push_back(reaches(out.device(), input) ? input : input.to(out.device()));
  }
  const std::vector<Device> sources = comm::devices_of(reachable);
  const std::vector<Stream> streams = streams_of(out.device(), sources);
  std::vector<Device> helpers = helpers_for(out.device(), sources, out.nbytes());
  if (!are_open_to_peers(reachable) || !are_open_to_peers(std::span(&out, 1))) helpers.clear();
  try {
    if (helpers.empty()) {
      order_behind(streams.front(), std::span(streams).subspan(1));
      reduce_part(out.device(), std::span(&out, 1), reachable, {0, out.numel()}, how);
      release_behind(std::span(streams).subspan(1), streams.front());
      return;
    }
    order_all(streams);
    const auto count = static_cast<int>(helpers.size());
    for (int i = 0; i < count; ++i) {
      reduce_part(helpers[static_cast<std::size_t>(i)], std::span(&out, 1), reachable,
                  partition(out.numel(), count, i), how);
    }
    order_all(streams);
  } catch (...) {
    keep_after_failure(std::span(&out, 1), streams);
    keep_after_failure(reachable, streams);
    throw;
  }
}

void reduce_into_all(std::span<const Tensor> tensors, const Reduction& how) {
  const Tensor& first = tensors.front();
  if (first.numel() == 0) return;
  const std::vector<Device> devices = comm::devices_of(tensors);
  if (tensors.size() > kMostInputs || !all_reach(devices, devices) || !are_open_to_peers(tensors)) {
    reduce_into(first, tensors, how);
    for (const Tensor& tensor : tensors.subspan(1)) Tensor(tensor).copy_(first);
    return;
  }
  const std::vector<Stream> streams = current_streams(tensors);
  const std::vector<Device> helpers = distinct(devices);
  const bool shared = helpers.size() > 2 && first.nbytes() >= comm_tuning().helper_bytes;
  try {
    if (!shared) {
      order_behind(streams.front(), std::span(streams).subspan(1));
      reduce_part(first.device(), tensors, tensors, {0, first.numel()}, how);
      release_behind(std::span(streams).subspan(1), streams.front());
      return;
    }
    // Only one device accesses part i, so the in-place reduction is safe.
    order_all(streams);
    const auto count = static_cast<int>(helpers.size());
    for (int i = 0; i < count; ++i) {
      reduce_part(helpers[static_cast<std::size_t>(i)], tensors, tensors,
                  partition(first.numel(), count, i), how);
    }
    order_all(streams);
  } catch (...) {
    keep_after_failure(tensors, streams);
    throw;
  }
}

void reduce_groups(Device destination, std::span<const ReduceGroup> groups,
                   std::span<const Device> sources, const Reduction& how) {
  std::size_t bytes = 0;
  for (const ReduceGroup& group : groups) {
    if (group.runs.empty()) continue;
    bytes += static_cast<std::size_t>(group.elements()) * element_size(group.dtype);
  }
  if (bytes == 0) return;
  const std::vector<Stream> streams = streams_of(destination, sources);
  const std::vector<Device> helpers = helpers_for(destination, sources, bytes);
  if (helpers.empty()) {
    order_behind(streams.front(), std::span(streams).subspan(1));
    for (const ReduceGroup& group : groups) reduce_on(destination, group, how);
    release_behind(std::span(streams).subspan(1), streams.front());
    return;
  }
  order_all(streams);
  const auto count = static_cast<int>(helpers.size());
  for (const ReduceGroup& group : groups) {
    if (group.runs.empty()) continue;
    for (int i = 0; i < count; ++i) {
      reduce_on(helpers[static_cast<std::size_t>(i)],
                slice(group, partition(group.elements(), count, i)), how);
    }
  }
  order_all(streams);
}

}  // namespace gantry
