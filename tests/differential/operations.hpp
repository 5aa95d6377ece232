// The operations of statements.
#pragma once

#include <string_view>
#include <vector>

#include "tests/differential/statement.hpp"

namespace gantry::testing {

/// The results of a statement on `device`. Throws std::runtime_error for an unknown operation.
[[nodiscard]] std::vector<Tensor> results_of(const Statement& statement, Device device);

}  // namespace gantry::testing
