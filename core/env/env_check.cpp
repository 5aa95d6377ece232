#include "core/env/env_check.hpp"
#include "core/env/settings.hpp"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/files/socket.hpp"
#include "core/text/nearest_name.hpp"

namespace gantry::env {
bool is_privileged() noexcept { return getauxval(AT_SECURE) != 0; }

std::vector<std::string> misspelled_names() {
  constexpr std::string_view kPrefix = "GANTRY_";
  std::vector<std::string> names;
  for (const Setting* setting : settings()) {
    const std::string_view name = setting->name();
    if (name.starts_with(kPrefix)) names.emplace_back(name.substr(kPrefix.size()));
  }
  std::vector<std::string> sentences;
  if (is_privileged()) return sentences;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view name = *entry;
    name = name.substr(0, name.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view typed = name.substr(kPrefix.size());
    if (std::find(names.begin(), names.end(), typed) != names.end()) continue;
    const auto nearest = nearest_name(typed, names);
    if (!nearest) continue;
    sentences.push_back(
        fmt::format("{} is no variable of gantry; did you mean {}{}?", name, kPrefix, *nearest));
  }
  std::sort(sentences.begin(), sentences.end());
  return sentences;
}

void check_program() {
  static_cast<void>(logging::level());
  static std::atomic<bool> is_told{!kJobId.text().empty()};
  if (is_told.exchange(true)) return;
  for (const std::string& sentence : misspelled_names()) {
    logging::write(logging::Level::warn, sentence);
  }
}

void check_variables() {
  check_program();
  for (const Setting* setting : settings()) setting->check();
}

}  // namespace gantry::env
