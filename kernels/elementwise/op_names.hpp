// Names of kernels, for reports.
#pragma once

#include "kernels/elementwise/elementwise.hpp"

namespace gantry::kernels {

[[nodiscard]] const char* name_of(UnaryOp op);
[[nodiscard]] const char* name_of(PredicateOp op);
[[nodiscard]] const char* name_of(BinaryOp op);
[[nodiscard]] const char* name_of(CompareOp op);
[[nodiscard]] const char* name_of(TernaryOp op);

}  // namespace gantry::kernels
