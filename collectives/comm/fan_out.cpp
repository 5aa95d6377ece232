#include "collectives/comm/fan_out.hpp"

#include <algorithm>

#include "collectives/comm/partition.hpp"
#include "collectives/comm/tuning.hpp"
#include "collectives/peers/reach.hpp"
#include "streams/batched_copy.hpp"

namespace gantry {

namespace {

// Bytes [part.begin, part.begin + part.count) of all runs, counted through.
std::vector<CopyRegion> cut(std::span<const CopyRegion> runs, Part part) {
  std::vector<CopyRegion> result;
  std::int64_t place = 0;
  for (const CopyRegion& run : runs) {
    const std::int64_t begin = std::max(part.begin, place);
    place += static_cast<std::int64_t>(run.bytes);
    const std::int64_t end = std::min(part.begin + part.count, place);
    if (begin >= end) continue;
    const std::int64_t skipped = begin - (place - static_cast<std::int64_t>(run.bytes));
    result.push_back({static_cast<const std::byte*>(run.from) + skipped,
                      static_cast<std::byte*>(run.to) + skipped,
                      static_cast<std::size_t>(end - begin)});
  }
  return result;
}

// Note [Shared work]: every sharer fetches its part and writes it to all receivers.
void fan_shared(std::span<const FanGroup> groups, std::span<const Device> sharers) {
  const auto count = static_cast<int>(sharers.size());
  for (const FanGroup& group : groups) {
    const auto bytes = static_cast<std::int64_t>(group.bytes());
    for (int i = 0; i < count; ++i) {
      const Stream stream = Stream::current(sharers[static_cast<std::size_t>(i)]);
      kernels::fan(kernels::Target::on(stream), cut(group.runs, partition(bytes, count, i)),
                   group.shifts);
    }
  }
}

std::size_t bytes_of(std::span<const CopyRegion> runs) {
  std::size_t sum = 0;
  for (const CopyRegion& run : runs) sum += run.bytes;
  return sum;
}

// From one device to its receivers. Engines are for one receiver, and for few runs: each takes 0.6
// us of the host.
void send_group(const Stream& hub, const FanGroup& group) {
  constexpr std::size_t kFewRuns = 16;
  if (group.shifts.empty() && group.runs.size() <= kFewRuns) {
    move_runs(hub, group.runs, comm_tuning().send_by_engines_bytes);
  } else {
    kernels::fan(kernels::Target::on(hub), group.runs, group.shifts);
  }
}

}  // namespace

std::size_t FanGroup::bytes() const { return bytes_of(runs); }

void move_runs(const Stream& stream, std::span<const CopyRegion> runs, std::size_t by_engines_from) {
  if (bytes_of(runs) >= by_engines_from) {
    copy_batch(stream, runs);
  } else {
    kernels::fan(kernels::Target::on(stream), runs);
  }
}

bool all_reach(std::span<const Device> from, std::span<const Tensor> tensors) {
  for (const Device device : from) {
    for (const Tensor& tensor : tensors) {
      if (!reaches(device, tensor)) return false;
    }
  }
  return true;
}

void fan_out(Device source, std::span<const FanGroup> groups, std::span<const Stream> homes,
             std::span<const Device> sharers, FreshOutputs* fresh) {
  std::size_t bytes = 0;
  for (const FanGroup& group : groups) bytes += group.bytes();
  if (bytes == 0) return;
  const Stream hub = Stream::current(source);
  if (sharers.size() > 1 && bytes >= comm_tuning().shared_bytes) {
    std::vector<Stream> all{hub};
    for (const Stream& home : homes) add_stream(all, home);
    for (const Device sharer : sharers) add_stream(all, Stream::current(sharer));
    order_all(all);
    fan_shared(groups, sharers);
    order_all(all);
    return;
  }
  if (fresh != nullptr) {
    fresh->order();
  } else {
    order_behind(hub, homes);
  }
  for (const FanGroup& group : groups) send_group(hub, group);
  release_behind(homes, hub);
}

namespace {

// The receivers' devices but the source's, if they can share the work.
std::vector<Device> sharers_for(const Tensor& source, std::span<const Tensor> receivers) {
  std::vector<Device> sharers;
  if (source.nbytes() < comm_tuning().shared_bytes) return sharers;
  for (const Tensor& receiver : receivers) {
    if (receiver.device() == source.device()) continue;
    if (std::find(sharers.begin(), sharers.end(), receiver.device()) == sharers.end()) {
      sharers.push_back(receiver.device());
    }
  }
  const bool reach = all_reach(sharers, receivers) && all_reach(sharers, std::span(&source, 1));
  return reach ? sharers : std::vector<Device>{};
}

std::vector<FanGroup> groups_of(const Tensor& source, std::span<const Tensor> receivers) {
  std::vector<FanGroup> groups;
  constexpr std::size_t kMost = kernels::kMaxFanCopies;
  for (std::size_t first = 0; first < receivers.size(); first += kMost) {
    const std::size_t end = std::min(receivers.size(), first + kMost);
    auto* const base = static_cast<std::byte*>(receivers[first].data());
    FanGroup& group = groups.emplace_back();
    group.runs.push_back({source.data(), base, source.nbytes()});
    for (std::size_t i = first + 1; i < end; ++i) {
      group.shifts.push_back(static_cast<std::byte*>(receivers[i].data()) - base);
    }
  }
  return groups;
}

bool shares_memory(const Tensor& tensor, std::span<const Tensor> others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const Tensor& other) { return tensor.is_view_of(other); });
}

}  // namespace

void keep_after_failure(std::span<const Tensor> tensors, std::span<const Stream> streams) noexcept {
  try {
    for (const Tensor& tensor : tensors) {
      for (const Stream& stream : streams) tensor.record_stream(stream);
    }
  } catch (...) {
    // The first exception says more.
  }
}

void broadcast_into(const Tensor& source, std::span<const Tensor> out, FreshOutputs* fresh) {
  std::vector<Tensor> direct;
  std::vector<Tensor> others;
  direct.reserve(out.size());
  for (const Tensor& receiver : out) {
    const bool simple = receiver.is_contiguous() && receiver.dtype() == source.dtype() &&
                        !receiver.is_view_of(source) && !shares_memory(receiver, direct) &&
                        reaches(source.device(), receiver);
    (simple ? direct : others).push_back(receiver);
  }
  const std::vector<Device> sharers = sharers_for(source, direct);
  const std::vector<Stream> homes = current_streams(direct);
  try {
    fan_out(source.device(), groups_of(source, direct), homes, sharers, fresh);
  } catch (...) {
    std::vector<Stream> users = homes;
    users.push_back(Stream::current(source.device()));
    keep_after_failure(direct, users);
    keep_after_failure(std::span(&source, 1), users);
    throw;
  }
  for (Tensor& receiver : others) receiver.copy_(source);
}

}  // namespace gantry
