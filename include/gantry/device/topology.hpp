// Moved to <gantry/machine/topology.hpp>. This header goes with the next release.
#pragma once

#include <gantry/machine/topology.hpp>

namespace gantry {

using machine::discover_topology;
using machine::Fact;
using machine::FactSource;
using machine::keep_gpus;
using machine::name;
using machine::parse_topology_json;
using machine::PciPath;
using machine::Topology;
using machine::topology_json;
using machine::topology_options_from_environment;
using machine::TopologyOptions;

}  // namespace gantry
