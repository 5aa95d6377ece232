#include "machine/topology/names.hpp"

#include <array>
#include <cstddef>

namespace gantry::machine {
namespace {

constexpr std::array<std::string_view, 8> kSources{"?",        "hwloc", "nvml",   "sysfs",
                                                   "nccl-xml", "file",  "system", "simulated"};
constexpr std::array<std::string_view, 6> kPaths{"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
constexpr std::array<std::string_view, 4> kEnds{"gpu", "switch", "processor", "?"};

template <class Enum, std::size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(FactSource source) { return kSources[static_cast<std::size_t>(source)]; }
std::string_view name(PciPath path) { return kPaths[static_cast<std::size_t>(path)]; }
std::string_view name(Topology::LinkEnd end) { return kEnds[static_cast<std::size_t>(end)]; }

std::optional<FactSource> source_named(std::string_view text) {
  return find<FactSource>(kSources, text);
}
std::optional<PciPath> path_named(std::string_view text) { return find<PciPath>(kPaths, text); }
std::optional<Topology::LinkEnd> link_end_named(std::string_view text) {
  return find<Topology::LinkEnd>(kEnds, text);
}

}  // namespace gantry::machine
