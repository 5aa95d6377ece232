#include "collectives/multi_gpu/multicast.hpp"

#include <algorithm>

#include "collectives/multi_gpu/tuning.hpp"
#include "collectives/partition.hpp"
#include "collectives/peers/reach.hpp"
#include "streams/batched_copy.hpp"

namespace gantry {

namespace {

// Returns bytes [part.begin, part.begin + part.count) of the concatenated runs.
std::vector<CopyRegion> slice(std::span<const CopyRegion> runs, Part part) {
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

// Every helper reads its part and writes it to all receivers; see Note [Helper devices].
void multicast_by_helpers(std::span<const MulticastGroup> groups, std::span<const Device> helpers) {
  const auto count = static_cast<int>(helpers.size());
  for (const MulticastGroup& group : groups) {
    const auto bytes = static_cast<std::int64_t>(group.bytes());
    for (int i = 0; i < count; ++i) {
      const Stream stream = Stream::current(helpers[static_cast<std::size_t>(i)]);
      kernels::multicast(kernels::Target::on(stream), slice(group.runs, partition(bytes, count, i)),
                         group.shifts);
    }
  }
}

std::size_t bytes_of(std::span<const CopyRegion> runs) {
  std::size_t sum = 0;
  for (const CopyRegion& run : runs) sum += run.bytes;
  return sum;
}

// Sends from one device to its receivers. Copy engines serve one receiver and few runs: each run
// takes 0.6 us of host time.
void send_group(const Stream& root, const MulticastGroup& group) {
  constexpr std::size_t kFewRuns = 16;
  if (group.shifts.empty() && group.runs.size() <= kFewRuns) {
    copy_by_size(root, group.runs, comm_tuning().send_by_engines_bytes);
  } else {
    kernels::multicast(kernels::Target::on(root), group.runs, group.shifts);
  }
}

}  // namespace

std::size_t MulticastGroup::bytes() const { return bytes_of(runs); }

void copy_by_size(const Stream& stream, std::span<const CopyRegion> runs,
                  std::size_t by_engines_from) {
  if (bytes_of(runs) >= by_engines_from) {
    copy_batch(stream, runs);
  } else {
    kernels::multicast(kernels::Target::on(stream), runs);
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

void multicast(Device source, std::span<const MulticastGroup> groups,
               std::span<const Stream> owners, std::span<const Device> helpers,
               CachedOutputs* cached) {
  std::size_t bytes = 0;
  for (const MulticastGroup& group : groups) bytes += group.bytes();
  if (bytes == 0) return;
  const Stream root = Stream::current(source);
  if (helpers.size() > 1 && bytes >= comm_tuning().helper_bytes) {
    std::vector<Stream> all{root};
    for (const Stream& owner : owners) add_stream(all, owner);
    for (const Device helper : helpers) add_stream(all, Stream::current(helper));
    order_all(all);
    multicast_by_helpers(groups, helpers);
    order_all(all);
    return;
  }
  if (cached != nullptr) {
    cached->order();
  } else {
    order_behind(root, owners);
  }
  for (const MulticastGroup& group : groups) send_group(root, group);
  release_behind(owners, root);
}

namespace {

// Returns the receivers' devices but the source's, if they can all help.
std::vector<Device> helpers_for(const Tensor& source, std::span<const Tensor> receivers) {
  std::vector<Device> helpers;
  if (source.nbytes() < comm_tuning().helper_bytes) return helpers;
  for (const Tensor& receiver : receivers) {
    if (receiver.device() == source.device()) continue;
    if (std::find(helpers.begin(), helpers.end(), receiver.device()) == helpers.end()) {
      helpers.push_back(receiver.device());
    }
  }
  const bool reach = all_reach(helpers, receivers) && all_reach(helpers, std::span(&source, 1));
  return reach ? helpers : std::vector<Device>{};
}

std::vector<MulticastGroup> groups_of(const Tensor& source, std::span<const Tensor> receivers) {
  std::vector<MulticastGroup> groups;
  constexpr std::size_t kMost = kernels::kMaxMulticastCopies;
  for (std::size_t first = 0; first < receivers.size(); first += kMost) {
    const std::size_t end = std::min(receivers.size(), first + kMost);
    auto* const base = static_cast<std::byte*>(receivers[first].data());
    MulticastGroup& group = groups.emplace_back();
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
    // The first exception is the one to report.
  }
}

void broadcast_into(const Tensor& source, std::span<const Tensor> out, CachedOutputs* cached) {
  std::vector<Tensor> direct;
  std::vector<Tensor> others;
  direct.reserve(out.size());
  for (const Tensor& receiver : out) {
    const bool simple = receiver.is_contiguous() && receiver.dtype() == source.dtype() &&
                        !receiver.is_view_of(source) && !shares_memory(receiver, direct) &&
                        reaches(source.device(), receiver);
    (simple ? direct : others).push_back(receiver);
  }
  const std::vector<Device> helpers = helpers_for(source, direct);
  const std::vector<Stream> owners = current_streams(direct);
  try {
    multicast(source.device(), groups_of(source, direct), owners, helpers, cached);
  } catch (...) {
    std::vector<Stream> users = owners;
    users.push_back(Stream::current(source.device()));
    keep_after_failure(direct, users);
    keep_after_failure(std::span(&source, 1), users);
    throw;
  }
  for (Tensor& receiver : others) receiver.copy_(source);
}

}  // namespace gantry
