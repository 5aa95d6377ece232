// Call sites as numbers. The walk up the stack belongs to a layer to the right.
#pragma once

#include <cstdint>
#include <string>

namespace gantry::sanitizer {

/// How the sanitizer captures and names call sites.
struct CallSiteSource {
  void (*prepare)() = nullptr;
  /// The number of the program's function that called gantry; 0 if unknown.
  std::uint32_t (*capture)() noexcept = nullptr;
  /// "file:line function"; empty if unknown. May be slow.
  std::string (*name)(std::uint32_t) = nullptr;
};

/// Called once, when the library is loaded. Without it all call sites are unknown.
void set_call_site_source(const CallSiteSource& source) noexcept;
[[nodiscard]] const CallSiteSource& call_site_source() noexcept;

}  // namespace gantry::sanitizer
