#include "kernels/host/capability.hpp"

namespace gantry::kernels::host {

Capability processor_capability() { return Capability::baseline; }

}  // namespace gantry::kernels::host
