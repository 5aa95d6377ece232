// Moved to <gantry/machine/plan.hpp>. This header goes with the next release.
#pragma once

#include <gantry/machine/plan.hpp>

namespace gantry {

using machine::binding_warning;
using machine::BindMode;
using machine::GpuChoice;
using machine::MemoryMode;
using machine::Plan;
using machine::plan;
using machine::PlanOptions;
using machine::RankOrder;
using machine::RankPlacement;

}  // namespace gantry
