#include "tools/check/measurements.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry::check {

std::string_view name(Route route) {
  switch (route) {
    case Route::to_device:
      return "to_device";
    case Route::to_host:
      return "to_host";
    case Route::write:
      return "write";
    case Route::read:
      return "read";
  }
  return {};
}

HostNode parse_host_node(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw InvalidArgument(
        fmt::format("--node: expected a number and CPUs, such as 0:0-15, but got '{}'", text));
  }
  HostNode node;
  node.id = static_cast<int>(env::parse_int(text.substr(0, colon), "--node", 0, 1 << 20));
  node.cpus = machine::CpuSet::parse(text.substr(colon + 1));
  return node;
}

std::vector<Measurement> list_measurements(int devices, std::size_t nodes) {
  std::vector<Measurement> all;
  for (int device = 0; device < devices; ++device) {
    for (int node = 0; node < static_cast<int>(nodes); ++node) {
      all.push_back({Route::to_device, device, node});
      all.push_back({Route::to_host, device, node});
    }
  }
  for (int device = 0; device < devices; ++device) {
    for (int other = 0; other < devices; ++other) {
      if (device == other) continue;
      all.push_back({Route::write, device, other});
      all.push_back({Route::read, device, other});
    }
  }
  return all;
}

}  // namespace gantry::check
