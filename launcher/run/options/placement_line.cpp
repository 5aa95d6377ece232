#include "launcher/run/options/placement_line.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry::launcher {

PlacementLine::PlacementLine(CommandLine& line, PlacementOptions& options)
    : options_(options),
      per_device_option_(line.add_option("--ranks-per-device", options.ranks_per_device,
                                         "let K ranks share a device")
                             .range(1, kMaxRanks)
                             .value("K")),
      gpus_option_(
          line.add_option("--gpus", gpus_, "all, best:N, idle:N, or a list 0,2 or GPU-a (all)")
              .value("GPUS")),
      order_option_(line.add_option("--order", order_, "GPUs of the ranks by pci, ring or given")
                        .value("ORDER")),
      bind_option_(
          line.add_option("--bind", bind_, "auto, numa, core, none, or CPUs 0-3:4-7 (auto)")
              .value("CPUS")),
      mem_option_(line.add_option("--mem", mem_, "memory of a rank's node: prefer, bind, none")
                      .one_of({"prefer", "bind", "none"})),
      topo_file_option_(line.add_option("--topo-file", topo_file_, "facts about the machine")
                            .value("FILE", ValueKind::file)) {
  line.add_alias("--ranks-per-gpu", "--ranks-per-device");
  line.add_flag("--cpu-only", options.cpu_only, "give ranks no device; needs -n");
}

void PlacementLine::read() const {
  const auto add = [&](const char* option, const std::string& value) {
    options_.arguments.push_back(fmt::format("{}={}", option, value));
  };
  if (gpus_option_.is_given()) {
    options_.choice.set_gpus(gpus_);
    add("--gpus", gpus_);
  }
  if (order_option_.is_given()) {
    options_.choice.set_order(order_);
    add("--order", order_);
  }
  if (bind_option_.is_given()) {
    options_.choice.set_bind(bind_);
    add("--bind", bind_);
  }
  if (mem_option_.is_given()) {
    options_.choice.set_memory(mem_);
    add("--mem", mem_);
  }
  if (topo_file_option_.is_given()) {
    options_.topo_file = topo_file_;
    add("--topo-file", topo_file_);
  }
  if (!options_.cpu_only) return;
  const auto refuse = [](const CommandLineOption& option, const char* name) {
    if (!option.is_given()) return;
    throw InvalidArgument(fmt::format("--cpu-only and {} contradict each other", name));
  };
  refuse(per_device_option_, "--ranks-per-device");
  refuse(gpus_option_, "--gpus");
  refuse(order_option_, "--order");
}

}  // namespace gantry::launcher
