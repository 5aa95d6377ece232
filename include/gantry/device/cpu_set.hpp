// Moved to <gantry/machine/cpu_set.hpp>. This header goes with the next release.
#pragma once

#include <gantry/machine/cpu_set.hpp>

namespace gantry {

using machine::CpuSet;
using machine::current_cpus;

}  // namespace gantry
