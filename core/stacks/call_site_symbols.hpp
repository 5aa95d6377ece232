// Names of code addresses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/frames.hpp>

namespace gantry::stacks {

/// A function and its mangled name; the plain name if the mangled one is unknown.
struct NamedFrame {
  Frame frame;
  std::string symbol;
};

/// Returns the functions inlined at a code address, innermost first, and then the function that
/// contains it. Never empty: an unknown function is its module and the offset in it. May be slow.
[[nodiscard]] std::vector<NamedFrame> functions_at(std::uintptr_t address);

/// Returns the exported function at an address, else the module and the offset in it.
[[nodiscard]] NamedFrame function_by_module(std::uintptr_t address);

/// Returns the C++ name of a mangled name; the name itself if it is not mangled.
[[nodiscard]] std::string demangled(const char* symbol);

/// True if a mangled name is in the namespace `name` ("gantry::memory") or in a scope inside it.
[[nodiscard]] bool is_in_namespace(std::string_view symbol, std::string_view name);
/// True if a mangled name is in the C++ library: namespace std or __gnu_cxx.
[[nodiscard]] bool is_in_cxx_library(std::string_view symbol);

/// The owner of the module that contains a code address.
enum class CodeOwner : std::uint8_t {
  gantry,   ///< a library of gantry
  program,  ///< another module, and gantry's code lies in libraries of its own
  unknown,  ///< gantry is linked statically
};

/// Sets is_internal of the functions that functions_at() returned for one address.
///
/// Functions of gantry's and the C++ library's headers are internal in the program's modules, too.
/// Where gantry is linked statically, the functions of namespace gantry are internal, and so are
/// those inlined there. Functions that a program adds to that namespace therefore count as
/// internal.
void mark_internal(std::vector<NamedFrame>& functions, CodeOwner owner);

}  // namespace gantry::stacks
