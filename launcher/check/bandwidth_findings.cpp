#include "launcher/check/bandwidth_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "launcher/topo/topo_text.hpp"

namespace gantry::launcher {
namespace {

// Kernels reach three quarters of what NVLinks promise, and less through PCIe, where small packets
// and the switch's own limits take their part.
constexpr double kNvLinkShare = 0.6;
constexpr double kPciePeerShare = 0.35;
constexpr double kHostShare = 0.6;
// Of the median of equal pairs.
constexpr double kPairShare = 0.7;
// By which a node is slower than another one.
constexpr double kNodeShare = 0.85;
constexpr std::size_t kMostNamed = 8;
constexpr std::size_t kFewestEqualPairs = 4;

// GB/s of one NVLink in one direction.
std::optional<double> nvlink_rate(const machine::Topology::Gpu& gpu) {
  if (!gpu.compute_capability) return std::nullopt;
  const std::string& capability = *gpu.compute_capability;
  if (capability == "8.6") return 14;
  switch (std::atoi(capability.c_str())) {
    case 6:
      return 20;
    case 7:
    case 8:
    case 9:
      return 25;
    case 10:
      return 50;
    default:
      return std::nullopt;
  }
}

std::string rate_text(double rate) { return fmt::format("{:.{}f}", rate, rate < 10 ? 1 : 0); }

// "12 GB/s", "12 to 15 GB/s".
std::string range_text(const std::vector<double>& rates) {
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  const std::string low = rate_text(*least);
  const std::string high = rate_text(*most);
  return low == high ? low + " GB/s" : fmt::format("{} to {} GB/s", low, high);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string named(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMostNamed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// Ways with one complaint.
struct Group {
  std::vector<std::string> names;
  std::vector<double> rates;
};

class Diagnosis {
 public:
  Diagnosis(const machine::Topology& machine, const Bandwidths& bandwidths)
      : machine_(machine),
        bandwidths_(bandwidths),
        is_simulated_(machine.gpu_source == machine::FactSource::simulated) {}

  std::vector<Finding> run() {
    for (const std::string& failure : bandwidths_.failures) {
      add(Severity::warning, "bandwidth", "not all was measured: " + failure,
          "install gantry whole, and look at the driver's messages (dmesg)");
    }
    if (!bandwidths_.no_devices.empty()) {
      add(Severity::error, "bandwidth", "the devices cannot be used: " + bandwidths_.no_devices,
          "see the cause; on NVSwitch machines, whether the fabric manager runs");
      return std::move(findings_);
    }
    diagnose_pairs("write", "written", bandwidths_.write);
    diagnose_pairs("read", "read", bandwidths_.read);
    for (std::size_t gpu = 0; gpu < bandwidths_.host.size(); ++gpu) diagnose_host(gpu);
    summarize_host();
    return std::move(findings_);
  }

 private:
  void add(Severity severity, std::string subject, std::string text, std::string remedy = "") {
    findings_.push_back({severity, std::move(subject), std::move(text), std::move(remedy)});
  }

  static std::string pair_name(std::string_view route, std::size_t gpu, std::size_t peer) {
    return route == "write" ? fmt::format("{} to {}", gpu, peer)
                            : fmt::format("{} from {}", gpu, peer);
  }

  // True if the way was measured, and moved the right bytes.
  bool is_sound(const Bandwidth& way, const std::string& subject, const std::string& done) {
    if (!way.failure.empty()) {
      add(Severity::warning, subject, "not measured: " + way.failure,
          "look at the driver's messages (dmesg), and at nvidia-smi -q");
      return false;
    }
    if (!way.gigabytes_per_second) return false;
    if (way.wrong_bytes == 0) return true;
    add(Severity::error, subject,
        fmt::format("{} of {} bytes were {} wrongly", way.wrong_bytes, way.bytes, done),
        "look at IOMMU and ACS settings of the machine; until then GANTRY_P2P=off and "
        "NCCL_P2P_DISABLE=1 avoid peer memory");
    return false;
  }

  void diagnose_pairs(std::string_view route, const std::string& done,
                      const std::vector<std::vector<Bandwidth>>& ways) {
    struct Pair {
      std::size_t gpu;
      std::size_t peer;
      double rate;
    };
    std::map<std::string, std::vector<Pair>> kinds;  // by the connection
    std::vector<double> all;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      for (std::size_t j = 0; j < ways.size(); ++j) {
        const Bandwidth& way = ways[i][j];
        if (i == j || !is_sound(way, "GPU " + pair_name(route, i, j), done)) continue;
        const std::string kind =
            connection_text(machine_.links[i][j]) + (way.is_by_kernel ? "" : " through the host");
        kinds[kind].push_back({i, j, *way.gigabytes_per_second});
        all.push_back(*way.gigabytes_per_second);
      }
    }
    if (all.empty()) return;
    if (is_simulated_) {
      add(Severity::fine, "bandwidth",
          fmt::format("{} {}, between simulated devices", range_text(all), done));
      return;
    }
    std::size_t slow = 0;
    for (const auto& [kind, pairs] : kinds) {
      std::map<double, Group> below;  // by the promise
      Group odd;
      std::vector<double> rates;
      for (const Pair& pair : pairs) rates.push_back(pair.rate);
      const double usual = median(rates);
      for (const Pair& pair : pairs) {
        const auto promise = promised_between(machine_, pair.gpu, pair.peer);
        const bool has_nvlinks = machine_.links[pair.gpu][pair.peer].nvlinks.value.value_or(0) > 0;
        const double share = has_nvlinks ? kNvLinkShare : kPciePeerShare;
        Group* group = nullptr;
        if (promise && pair.rate < share * *promise) {
          group = &below[*promise];
        } else if (pairs.size() >= kFewestEqualPairs && pair.rate < kPairShare * usual) {
          group = &odd;
        }
        if (group == nullptr) continue;
        group->names.push_back(pair_name(route, pair.gpu, pair.peer));
        group->rates.push_back(pair.rate);
        ++slow;
      }
      for (const auto& [promise, group] : below) {
        add(Severity::warning, "bandwidth",
            fmt::format("{} {} by GPUs {}, but {} promises {} GB/s", range_text(group.rates), done,
                        named(group.names), kind, rate_text(promise)),
            kind.starts_with("NV")
                ? "see nvidia-smi nvlink -s and -e for inactive links and errors"
                : "see nvidia-smi topo -p2p w, and IOMMU and ACS settings of the machine");
      }
      if (!odd.names.empty()) {
        add(Severity::warning, "bandwidth",
            fmt::format("{} {} by GPUs {}, but {} GB/s by most pairs with {}",
                        range_text(odd.rates), done, named(odd.names), rate_text(usual), kind),
            "compare these GPUs: nvidia-smi nvlink -e, PCIe errors in dmesg, other jobs on them; "
            "--gpus LIST leaves them out");
      }
    }
    if (slow < all.size()) {
      add(Severity::fine, "bandwidth", fmt::format("{} {} between GPUs", range_text(all), done));
    }
  }

  void diagnose_host(std::size_t gpu) {
    const std::string subject = fmt::format("GPU {}", gpu);
    std::optional<std::size_t> fastest;
    std::vector<double> rates(bandwidths_.nodes.size(), 0);
    for (std::size_t at = 0; at < rates.size(); ++at) {
      const Bandwidths::Host& host = bandwidths_.host[gpu][at];
      const int node = bandwidths_.nodes[at];
      const bool to = is_sound(host.to_device, host_subject(gpu, node), "copied to it");
      const bool from = is_sound(host.to_host, host_subject(gpu, node), "copied from it");
      if (!to || !from) continue;
      if (node >= 0 && host.to_device.host_node && *host.to_device.host_node != node) {
        add(Severity::note, host_subject(gpu, node),
            fmt::format("the memory was on NUMA node {} instead", *host.to_device.host_node),
            "let the container set memory policies (seccomp), or free memory of the node");
        continue;
      }
      rates[at] =
          std::min(*host.to_device.gigabytes_per_second, *host.to_host.gigabytes_per_second);
      host_rates_.push_back(rates[at]);
      if (!fastest || rates[at] > rates[*fastest]) fastest = at;
    }
    if (!fastest || is_simulated_) return;
    diagnose_pcie(gpu, rates[*fastest]);
    if (rates.size() > 1) diagnose_nodes(gpu, rates, *fastest);
  }

  static std::string host_subject(std::size_t gpu, int node) {
    return node < 0 ? fmt::format("GPU {} and host", gpu)
                    : fmt::format("GPU {} and NUMA node {}", gpu, node);
  }

  void diagnose_pcie(std::size_t gpu, double rate) {
    const auto promise = promised_by_pcie(machine_.gpus[gpu]);
    if (!promise || rate >= kHostShare * *promise) return;
    add(Severity::warning, fmt::format("GPU {}", gpu),
        fmt::format("{} GB/s between it and the host, but its PCIe link promises {} GB/s",
                    rate_text(rate), rate_text(*promise)),
        "see nvidia-smi -q -d PCIE under load; look at the slot, the BIOS's power saving and the "
        "IOMMU");
  }

  void diagnose_nodes(std::size_t gpu, const std::vector<double>& rates, std::size_t fastest) {
    const machine::Fact<int>& own = machine_.gpus[gpu].node;
    const std::string subject = fmt::format("GPU {}", gpu);
    const auto text_of = [&](std::size_t at) {
      return fmt::format("{} GB/s with NUMA node {}", rate_text(rates[at]), bandwidths_.nodes[at]);
    };
    const auto slowest = static_cast<std::size_t>(
        std::min_element(rates.begin(), rates.end(),
                         [](double a, double b) { return (a > 0 ? a : 1e9) < (b > 0 ? b : 1e9); }) -
        rates.begin());
    if (rates[slowest] >= kNodeShare * rates[fastest]) return;
    if (!own) {
      add(Severity::note, subject,
          fmt::format("{}, {}; its node is unknown", text_of(fastest), text_of(slowest)),
          fmt::format("write node {} into a file for --topo-file, so that ranks are bound",
                      bandwidths_.nodes[fastest]));
      return;
    }
    const auto near = static_cast<std::size_t>(
        std::find(bandwidths_.nodes.begin(), bandwidths_.nodes.end(), *own) -
        bandwidths_.nodes.begin());
    if (near < rates.size() && rates[near] > 0 && rates[near] < kNodeShare * rates[fastest]) {
      add(Severity::warning, subject,
          fmt::format("{}, though node {} is said to be near; {}", text_of(near), *own,
                      text_of(fastest)),
          "the firmware may name the wrong node: correct it with --topo-file; or another job uses "
          "the memory of that node");
      return;
    }
    add(Severity::note, subject, fmt::format("{}, {}", text_of(fastest), text_of(slowest)),
        fmt::format("keep its rank and its memory on node {}: --bind numa",
                    bandwidths_.nodes[fastest]));
  }

  void summarize_host() {
    if (host_rates_.empty()) return;
    add(Severity::fine, "host memory",
        fmt::format("{} to and from {}", range_text(host_rates_),
                    is_simulated_ ? "simulated devices" : "GPUs"));
  }

  const machine::Topology& machine_;
  const Bandwidths& bandwidths_;
  bool is_simulated_;
  std::vector<double> host_rates_;
  std::vector<Finding> findings_;
};

}  // namespace

std::optional<double> promised_by_pcie(const machine::Topology::Gpu& gpu) {
  constexpr std::array<double, 7> kPerLane{0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  const machine::Fact<int>& generation =
      gpu.max_pcie_generation ? gpu.max_pcie_generation : gpu.pcie_generation;
  const machine::Fact<int>& width = gpu.pcie_width ? gpu.pcie_width : gpu.max_pcie_width;
  if (!generation || !width || *generation < 1 || *width < 1 ||
      static_cast<std::size_t>(*generation) >= kPerLane.size()) {
    return std::nullopt;
  }
  return kPerLane[static_cast<std::size_t>(*generation)] * *width;
}

std::optional<double> promised_between(const machine::Topology& machine, std::size_t gpu,
                                       std::size_t peer) {
  const machine::Topology::Link& link = machine.links[gpu][peer];
  if (link.nvlinks && *link.nvlinks > 0) {
    const auto rate = nvlink_rate(machine.gpus[gpu]);
    if (!rate) return std::nullopt;
    return *rate * *link.nvlinks;
  }
  // Nobody promises the bandwidth of host bridges.
  const bool is_below_switches =
      link.path && (*link.path == machine::PciPath::pix || *link.path == machine::PciPath::pxb);
  const auto own = promised_by_pcie(machine.gpus[gpu]);
  const auto other = promised_by_pcie(machine.gpus[peer]);
  if (!is_below_switches || !own || !other) return std::nullopt;
  return std::min(*own, *other);
}

std::vector<Finding> find_slow_ways(const machine::Topology& machine,
                                    const Bandwidths& bandwidths) {
  return Diagnosis(machine, bandwidths).run();
}

}  // namespace gantry::launcher
