#include "machine/topology/sources.hpp"

namespace gantry::machine {

int hwloc_version() { return 0; }

HwlocFacts read_hwloc(const std::string& /*xml*/, bool /*with_devices*/) {
  HwlocFacts facts;
  facts.problem = "this gantry was built without hwloc";
  return facts;
}

}  // namespace gantry::machine
