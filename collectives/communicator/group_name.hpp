#pragma once

#include <string_view>

namespace gantry {

// Requires a name of a group, or none. Throws: InvalidArgument that begins with `op`.
void require_group_name(std::string_view name, std::string_view op);

}  // namespace gantry
