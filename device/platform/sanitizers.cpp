#include "device/platform/sanitizers.hpp"

#include <gantry/core/log.hpp>

// Weak: null unless the program, which is instrumented then, brings the runtime.
extern "C" {
[[gnu::weak]] void __tsan_init();
[[gnu::weak]] void __asan_init();
}

namespace gantry {

LoadedSanitizers loaded_sanitizers() noexcept {
  return {.thread = &__tsan_init != nullptr, .address = &__asan_init != nullptr};
}

std::vector<std::string> sanitizer_warnings(LoadedSanitizers loaded, std::string_view built_with) {
  std::vector<std::string> warnings;
  if (loaded.thread && built_with.find("thread") == std::string_view::npos) {
    warnings.emplace_back(
        "this program is built with -fsanitize=thread, but gantry is not: ThreadSanitizer reports "
        "races that do not exist and misses those between streams; build and install gantry with "
        "the preset tsan (GANTRY_SANITIZE=thread) and link that");
  }
  if (loaded.address && built_with.find("address") == std::string_view::npos) {
    warnings.emplace_back(
        "this program is built with -fsanitize=address, but gantry is not: AddressSanitizer does "
        "not see uses of freed device memory; build and install gantry with the preset asan "
        "(GANTRY_SANITIZE=address,undefined) and link that");
  }
  return warnings;
}

void warn_of_missing_sanitizers() {
  for (const std::string& text : sanitizer_warnings(loaded_sanitizers(), GANTRY_BUILD_SANITIZERS)) {
    logging::warn(text);
  }
}

}  // namespace gantry
