#include "core/env/env_check.hpp"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/files/socket.hpp"
#include "core/text/nearest_name.hpp"

namespace gantry::env {
namespace {

// "auto, tcp or mpi".
std::string list_of(std::initializer_list<std::string_view> choices) {
  std::string text;
  for (const std::string_view* choice = choices.begin(); choice != choices.end(); ++choice) {
    if (choice != choices.begin()) text += choice + 1 == choices.end() ? " or " : ", ";
    text += *choice;
  }
  return text;
}

void check_directory(const char* name) {
  const std::string path = get(name).value_or("");
  if (path.empty()) return;
  struct stat facts {};
  const bool exists = stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) return;
  throw InvalidArgument(fmt::format("{}: expected a directory, but got '{}': {}", name, path,
                                    std::strerror(exists ? ENOTDIR : errno)));
}

}  // namespace

bool is_privileged() noexcept { return getauxval(AT_SECURE) != 0; }

std::string get_choice(const char* name, std::initializer_list<std::string_view> choices) {
  const std::string value = get(name).value_or("");
  if (value.empty()) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  throw InvalidArgument(
      fmt::format("{}: expected {}, but got '{}'", name, list_of(choices), value));
}

std::vector<std::string> misspelled_names() {
  constexpr std::string_view kPrefix = "GANTRY_";
  std::vector<std::string> names;
  for (const Variable& variable : variables()) {
    if (variable.name.starts_with(kPrefix))
      names.emplace_back(variable.name.substr(kPrefix.size()));
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
  static std::atomic<bool> is_told{get("GANTRY_JOB_ID").has_value()};
  if (is_told.exchange(true)) return;
  for (const std::string& sentence : misspelled_names()) {
    logging::write(logging::Level::warn, sentence);
  }
}

void check_variables() {
  check_program();
  constexpr int kMaxProcesses = 1 << 20;
  for (const char* rank :
       {"GANTRY_RANK", "GANTRY_LOCAL_RANK", "GANTRY_NODE_RANK", "GANTRY_RESTART"}) {
    static_cast<void>(get_int(rank, 0, kMaxProcesses - 1));
  }
  for (const char* count : {"GANTRY_WORLD_SIZE", "GANTRY_LOCAL_SIZE", "GANTRY_NODE_COUNT"}) {
    static_cast<void>(get_int(count, 1, kMaxProcesses));
  }
  static_cast<void>(get_int("GANTRY_DEVICE", 0, 1023));
  static_cast<void>(get_int("GANTRY_COLL_TIMEOUT", 1, 1'000'000));
  static_cast<void>(get_choice("GANTRY_HOST_LINKS", {"auto", "tcp", "mpi"}));
  static_cast<void>(get_choice("GANTRY_HOST_CRYPT", {"off", "on"}));
  static_cast<void>(get_choice("GANTRY_SANITIZER", {"off", "warn", "throw"}));
  static_cast<void>(get_choice("GANTRY_P2P", {"off", "on", "probe"}));
  check_directory("GANTRY_FLIGHT_DIR");
  if (const std::string address = get("GANTRY_RDZV").value_or(""); !address.empty()) {
    try {
      static_cast<void>(parse_socket_address(address));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("GANTRY_RDZV: {}", error.what()));
    }
  }
}

}  // namespace gantry::env
