// Names of code addresses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// A function, and its name as the linker knows it (the plain name if that is unknown).
struct NamedFrame {
  Frame frame;
  std::string symbol;
};

/// The function at a code address; before it, those that were inlined there, innermost first.
/// Never empty: an address nothing is known about has its module and offset. May be slow.
[[nodiscard]] std::vector<NamedFrame> functions_at(std::uintptr_t address);

/// What the dynamic linker knows: the exported function, or the module with the offset in it.
[[nodiscard]] NamedFrame function_by_module(std::uintptr_t address);

/// A readable name for a linker's name.
[[nodiscard]] std::string demangled(const char* symbol);

/// Whether a linker's name belongs to a namespace ("gantry::memory") or to something in it.
[[nodiscard]] bool is_in_namespace(std::string_view symbol, std::string_view name);

}  // namespace gantry::memory
