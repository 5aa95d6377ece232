// Names of kernels, for reports.
#pragma once

#include "kernels/reductions/reduce.hpp"

namespace gantry::kernels {

[[nodiscard]] const char* name_of(Reduction op);
[[nodiscard]] const char* name_of(ScanOp op);

}  // namespace gantry::kernels
