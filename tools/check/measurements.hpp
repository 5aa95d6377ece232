// The measurements of gantry-check-devices, in their order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/machine/cpu_set.hpp>

namespace gantry::check {

/// The way of the bytes of a measurement.
enum class Route {
  to_device,  ///< from page-locked memory of the host
  to_host,    ///< to page-locked memory of the host
  write,      ///< a device writes to another one's memory
  read,       ///< a device reads another one's memory
};

/// Name of a route: "to_device", "to_host", "write", "read".
[[nodiscard]] std::string_view name(Route route);

/// A NUMA node of the host, and its CPUs.
struct HostNode {
  int id = 0;
  machine::CpuSet cpus;
};

/// Reads "0:0-15,32-47". Throws: InvalidArgument.
[[nodiscard]] HostNode parse_host_node(const std::string& text);

/// One measurement.
struct Measurement {
  Route route = Route::write;
  int device = 0;  ///< the one whose kernels or copies move the bytes
  int other = 0;   ///< the other device, or the index of the host node
};

/// All measurements of so many devices and these nodes. The order depends on the arguments alone,
/// so that another process can go on behind a measurement that ended one.
[[nodiscard]] std::vector<Measurement> list_measurements(int devices, std::size_t nodes);

}  // namespace gantry::check
