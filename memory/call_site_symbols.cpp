#include "memory/call_site_symbols.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace gantry::memory {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

bool is_in_namespace(std::string_view symbol, std::string_view name) {
  if (!symbol.starts_with("_Z")) return false;
  symbol.remove_prefix(2);
  while (symbol.starts_with('Z')) symbol.remove_prefix(1);  // local to a function
  if (!symbol.starts_with('N')) return false;
  symbol.remove_prefix(1);
  while (symbol.starts_with('K') || symbol.starts_with('V')) symbol.remove_prefix(1);
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find("::"));
    const std::string mangled = fmt::format("{}{}", part.size(), part);
    if (!symbol.starts_with(mangled)) return false;
    symbol.remove_prefix(mangled.size());
    name.remove_prefix(std::min(name.size(), part.size() + 2));
  }
  return true;
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

}  // namespace gantry::memory
