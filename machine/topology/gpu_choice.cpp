#include "machine/topology/gpu_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include <gantry/core/error.hpp>

#include "machine/nvml/nvml.hpp"
#include "machine/topology/gpu_order.hpp"

namespace gantry::machine {
namespace {

// An idle GPU may hold this part of its memory: the driver itself takes some memory.
constexpr std::uint64_t kIdleShare = 20;  // a twentieth

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string visible_text(const Topology& topology) {
  const std::size_t count = topology.gpus.size();
  if (count == 0) return "no GPU is visible";
  if (count == 1) return "only GPU 0 is visible";
  return fmt::format("GPUs 0 to {} are visible", count - 1);
}

// The GPU that an entry of a list names.
int find_gpu(const Topology& topology, const std::string& entry) {
  const auto fail = [&](std::string_view cause) {
    return InvalidArgument(
        fmt::format("--gpus: '{}' {}; {}", entry, cause, visible_text(topology)));
  };
  int index = 0;
  const char* const end = entry.data() + entry.size();
  const auto read = std::from_chars(entry.data(), end, index);
  if (read.ec == std::errc{} && read.ptr == end) {
    if (index < 0 || index >= static_cast<int>(topology.gpus.size()))
      throw fail("is no visible GPU");
    return index;
  }
  std::vector<int> found;
  const std::string wanted = lower(entry);
  const bool is_uuid = wanted.starts_with("gpu-") || wanted.starts_with("mig-");
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const Topology::Gpu& gpu = topology.gpus[i];
    const std::string bus_id = short_bus_id(wanted);
    const bool named = is_uuid ? lower(gpu.uuid).starts_with(wanted)
                               : gpu.bus_id == bus_id || gpu.bus_id == "0000:" + bus_id;
    if (named) found.push_back(static_cast<int>(i));
  }
  if (found.empty()) throw fail("is no visible GPU");
  if (found.size() > 1) throw fail(fmt::format("names {} GPUs", found.size()));
  return found.front();
}

std::vector<int> listed(const Topology& topology, const std::vector<std::string>& list) {
  std::vector<int> gpus;
  for (const std::string& entry : list) {
    const int gpu = find_gpu(topology, entry);
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) {
      throw InvalidArgument(fmt::format("--gpus: '{}' names GPU {} a second time", entry, gpu));
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

bool is_idle(const Topology::Gpu& gpu) {
  if (!gpu.processes) {
    throw InvalidArgument(fmt::format(
        "--gpus idle: the processes of GPU {} are unknown; use --gpus best:N or a list", gpu.uuid));
  }
  if (*gpu.processes > 0) return false;
  // Processes of other containers are hidden, their memory is not.
  return !gpu.memory_bytes || !gpu.used_memory_bytes ||
         *gpu.used_memory_bytes <= *gpu.memory_bytes / kIdleShare;
}

std::string connection_text(const Topology& topology, const std::vector<int>& gpus) {
  const Topology::Link* worst = nullptr;
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b) continue;
      const auto& link = topology.links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
      if (worst == nullptr || link_quality(link) < link_quality(*worst)) worst = &link;
    }
  }
  return worst == nullptr ? "" : fmt::format(", worst connection {}", link_text(*worst));
}

std::vector<int> choose(const Topology& topology, const PlanOptions& options, std::string& why) {
  std::vector<int> all(topology.gpus.size());
  std::iota(all.begin(), all.end(), 0);
  switch (options.gpus) {
    case GpuChoice::all:
      why = fmt::format("all {} visible", all.size());
      return all;
    case GpuChoice::listed:
      why = "as listed";
      return listed(topology, options.gpu_list);
    case GpuChoice::best:
    case GpuChoice::idle:
      break;
  }
  const bool idle = options.gpus == GpuChoice::idle;
  if (idle)
    std::erase_if(all, [&](int i) { return !is_idle(topology.gpus[static_cast<std::size_t>(i)]); });
  const char* const kind = idle ? "idle" : "visible";
  if (options.gpu_count > static_cast<int>(all.size())) {
    throw InvalidArgument(fmt::format("--gpus {}:{}: only {} of {} {} {}", idle ? "idle" : "best",
                                      options.gpu_count, all.size(), topology.gpus.size(),
                                      all.size() == 1 ? "GPU is" : "GPUs are", kind));
  }
  std::vector<int> best = best_connected(topology, all, options.gpu_count);
  why = fmt::format("best {} of {} {}{}", best.size(), all.size(), kind,
                    connection_text(topology, best));
  return best;
}

}  // namespace

void choose_gpus(const Topology& topology, const PlanOptions& options, Plan& plan) {
  std::string why;
  std::vector<int> gpus = choose(topology, options, why);
  RankOrder order = options.order;
  if (order == RankOrder::automatic) {
    const bool given = options.gpus == GpuChoice::listed ||
                       (options.gpus == GpuChoice::all && options.is_order_given);
    order = given ? RankOrder::given : RankOrder::pci;
  }
  std::string how;
  switch (order) {
    case RankOrder::automatic:
    case RankOrder::given:
      if (options.gpus != GpuChoice::listed) std::sort(gpus.begin(), gpus.end());
      how = "as given";
      break;
    case RankOrder::pci:
      gpus = by_bus_id(topology, std::move(gpus));
      how = "by PCI bus id";
      break;
    case RankOrder::ring: {
      // With fewer ranks than GPUs the ring has one GPU for each rank.
      const auto ranks = static_cast<std::size_t>(std::min<std::size_t>(
          gpus.size(),
          static_cast<std::size_t>(options.ranks.value_or(static_cast<int>(gpus.size())))));
      gpus = by_bus_id(topology, std::move(gpus));
      std::vector<int> ring =
          ring_order(topology, {gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(ranks)});
      std::copy(ring.begin(), ring.end(), gpus.begin());
      how = ranks > kMaxRing
                ? fmt::format("by PCI bus id, since a ring of more than {} is not sought", kMaxRing)
                : "as the best ring";
      break;
    }
  }
  plan.gpus = std::move(gpus);
  plan.decisions.push_back(fmt::format("GPUs {}: {}", fmt::join(plan.gpus, ","), why));
  plan.decisions.push_back(fmt::format("order: {}", how));
}

}  // namespace gantry::machine
