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
/// Whether a linker's name belongs to the C++ library: namespace std or __gnu_cxx.
[[nodiscard]] bool is_in_cxx_library(std::string_view symbol);

/// What the module of a code address says about its functions.
enum class CodeOwner : std::uint8_t {
  gantry,   ///< a library of gantry
  program,  ///< another module, and gantry's code lies in libraries of its own
  unknown,  ///< gantry is linked statically
};

/// Sets is_internal of the functions that functions_at gave for one address.
///
/// Functions of gantry's and the C++ library's headers are internal in the program's modules, too.
/// Where gantry is linked statically, functions of namespace gantry are internal, with what was
/// inlined there; a program that adds to that namespace sees the callers of its additions.
void mark_internal(std::vector<NamedFrame>& functions, CodeOwner owner);

}  // namespace gantry::memory
