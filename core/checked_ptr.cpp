#include <gantry/core/checked_ptr.hpp>

#include <string>

#include <gantry/core/error.hpp>

namespace gantry::detail {

void throw_moved_from(std::string_view member) {
  const std::string type(member.substr(0, member.find("::")));
  throw InvalidArgument(std::string(member) + ": expected a valid " + type +
                        ", but got a moved-from one");
}

}  // namespace gantry::detail
