#include "launcher/run/plan/machine.hpp"

#include <cstdlib>
#include <optional>

#include <gantry/core/env.hpp>

#include "launcher/command/command.hpp"

namespace gantry::launcher {
namespace {

// Loading hwloc's plugins takes longer than starting a rank, and most of them are for GPUs' own
// runtimes, which are not asked here. Ranks do not inherit the choice.
void choose_hwloc_plugins(const machine::TopologyOptions& where) {
  std::string unused =
      "hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_rsmi.so";
  // hwloc reads its own files without the plugin, but not those with comments, for example.
  const bool reads_file = !where.file.empty() || env::get("HWLOC_XMLFILE").has_value();
  if (!reads_file) unused += ",hwloc_xml_libxml.so";
  const bool needs_devices = !where.skip_gpus && where.simulated_gpus == 0;
  if (!reads_file && !needs_devices) unused += ",hwloc_pci.so";
  setenv("HWLOC_PLUGINS_BLACKLIST", unused.c_str(), 0);
}

}  // namespace

Machine discover_machine(const PlacementOptions& options, const Environment& environment) {
  Machine machine;
  machine::TopologyOptions where = topology_options(options.topo_file);
  where.skip_gpus = options.cpu_only;
  choose_hwloc_plugins(where);
  const machine::PlanOptions& choice = options.choice;
  where.skip_links = choice.gpus != machine::GpuChoice::best &&
                     choice.gpus != machine::GpuChoice::idle &&
                     choice.order != machine::RankOrder::ring;
  machine.inventory = discover_devices(where, [&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
  machine.host = machine.inventory.machine.host;
  return machine;
}

}  // namespace gantry::launcher
