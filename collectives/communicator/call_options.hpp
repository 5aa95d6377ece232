#pragma once

#include <string_view>

#include <gantry/collectives/collective_options.hpp>

#include "collectives/call.hpp"

namespace gantry {

// Checks `options`, and writes them into the call, which refers to their tag afterwards. `op` is
// the function of the program. Throws: InvalidArgument.
void set_options(CollectiveCall& call, const CollectiveOptions& options, std::string_view op);

}  // namespace gantry
