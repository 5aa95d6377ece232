#include "core/env_check.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"

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

std::string get_choice(const char* name, std::initializer_list<std::string_view> choices) {
  const std::string value = get(name).value_or("");
  if (value.empty()) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  throw InvalidArgument(
      fmt::format("{}: expected {}, but got '{}'", name, list_of(choices), value));
}

void check_variables() {
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
