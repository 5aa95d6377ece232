// Whether this is a virtual machine or a container, and the room for shared memory.
#pragma once

#include <gantry/device/topology.hpp>

namespace gantry {

/// Enters host name, virtualization, container and /dev/shm.
void read_system(Topology& topology);

}  // namespace gantry
