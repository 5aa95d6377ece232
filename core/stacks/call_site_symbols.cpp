#include "core/stacks/call_site_symbols.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace gantry::stacks {
namespace {

// A linker's name without what precedes the outermost scope: "6gantry…" for "_ZNK6gantry…". Empty
// for a name that has no scope.
std::string_view scope_of(std::string_view symbol) {
  const auto skip = [&symbol](std::string_view letters) {
    while (!symbol.empty() && letters.find(symbol.front()) != std::string_view::npos) {
      symbol.remove_prefix(1);
    }
  };
  if (!symbol.starts_with("_Z")) return {};
  symbol.remove_prefix(2);
  skip("Z");                                   // local to a function
  if (symbol.starts_with('S')) return symbol;  // std has an abbreviation
  if (!symbol.starts_with('N')) return {};
  symbol.remove_prefix(1);
  skip("KVRO");  // qualifiers of a member function
  return symbol;
}

bool is_header(std::string_view file) {
  const std::string_view extension = file.substr(std::min(file.rfind('.'), file.size()));
  return extension == ".hpp" || extension == ".inl" || extension == ".cuh";
}

// Debug information without types (-g1) has no linker's name of an inlined function. Functions of
// gantry's public headers and of the C++ library are then known by their folders.
bool is_inlined_from_header(const NamedFrame& function) {
  if (function.symbol.starts_with("_Z")) return false;
  const std::string& file = function.frame.filename;
  return file.find("/include/c++/") != std::string::npos ||
         (is_header(file) && file.find("include/gantry/") != std::string::npos);
}

}  // namespace

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

bool is_in_namespace(std::string_view symbol, std::string_view name) {
  std::string_view scope = scope_of(symbol);
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find("::"));
    const std::string mangled = fmt::format("{}{}", part.size(), part);
    if (!scope.starts_with(mangled)) return false;
    scope.remove_prefix(mangled.size());
    name.remove_prefix(std::min(name.size(), part.size() + 2));
  }
  return true;
}

bool is_in_cxx_library(std::string_view symbol) {
  // std::, std::allocator, std::basic_string, std::string and the streams.
  constexpr std::string_view kAbbreviations = "tabsiod";
  const std::string_view scope = scope_of(symbol);
  if (scope.size() > 1 && scope.front() == 'S') {
    return kAbbreviations.find(scope[1]) != std::string_view::npos;
  }
  return is_in_namespace(symbol, "__gnu_cxx");
}

void mark_internal(std::vector<NamedFrame>& functions, CodeOwner owner) {
  const NamedFrame& outermost = functions.back();
  const bool is_gantry = owner == CodeOwner::gantry ||
                         (owner == CodeOwner::unknown && !is_header(outermost.frame.filename) &&
                          is_in_namespace(outermost.symbol, "gantry"));
  for (NamedFrame& function : functions) {
    const bool is_from_header = owner == CodeOwner::unknown || function.frame.line == 0 ||
                                is_header(function.frame.filename);
    function.frame.is_internal = is_gantry || is_in_cxx_library(function.symbol) ||
                                 is_inlined_from_header(function) ||
                                 (is_from_header && is_in_namespace(function.symbol, "gantry"));
  }
}

NamedFrame function_by_module(std::uintptr_t address) {
  Dl_info info{};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a code address
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr) {
    return {{"??", 0, fmt::format("{:#x}", address)}, ""};
  }
  if (info.dli_sname != nullptr) {
    return {{info.dli_fname, 0, demangled(info.dli_sname)}, info.dli_sname};
  }
  const auto offset = address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return {{info.dli_fname, 0, fmt::format("+{:#x}", offset)}, ""};
}

}  // namespace gantry::stacks
