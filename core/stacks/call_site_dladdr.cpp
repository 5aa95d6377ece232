// Names of code addresses where libbacktrace is absent: exported functions only.
#include "core/stacks/call_site_symbols.hpp"

namespace gantry::stacks {

std::vector<NamedFrame> functions_at(std::uintptr_t address) {
  return {function_by_module(address)};
}

}  // namespace gantry::stacks
