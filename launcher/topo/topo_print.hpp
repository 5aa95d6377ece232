// The machine as text: a matrix, a tree, JSON or a picture.
#pragma once

#include <string>

#include <gantry/machine/topology.hpp>

namespace gantry::launcher {

/// How `glaunch topo` prints the machine.
enum class TopoForm { matrix, tree, json, svg };

/// The form of the text, and its secrecy.
struct TopoRequest {
  TopoForm form = TopoForm::matrix;
  bool redact = false;  ///< JSON without names and UUIDs
};

/// The text of `glaunch topo` in the form that is asked for.
[[nodiscard]] std::string describe_topology(const machine::Topology& topology,
                                            const TopoRequest& request);

/// The machine as nvidia-smi draws it: a matrix of connections, then one line for each GPU.
[[nodiscard]] std::string topology_matrix(const machine::Topology& topology);
/// The machine as a tree: packages, NUMA nodes, PCI bridges, GPUs and network interfaces.
[[nodiscard]] std::string topology_tree(const machine::Topology& topology);
/// The machine as an SVG picture.
[[nodiscard]] std::string topology_picture(const machine::Topology& topology);

}  // namespace gantry::launcher
