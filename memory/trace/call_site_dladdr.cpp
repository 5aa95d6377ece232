// Names of code addresses where libbacktrace is absent: exported functions only.
#include "memory/trace/call_site_symbols.hpp"

namespace gantry::memory {

std::vector<NamedFrame> functions_at(std::uintptr_t address) {
  return {function_by_module(address)};
}

}  // namespace gantry::memory
