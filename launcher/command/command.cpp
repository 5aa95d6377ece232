#include "launcher/command/command.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <gantry/core/log.hpp>

#include "core/env/env_check.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::launcher {

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

void print_error(const std::exception& error) noexcept {
  std::string text;
  try {
    text = escape_control_characters(error.what(), LineEnds::keep);
  } catch (const std::exception&) {
    text = "out of memory";
  }
  std::fprintf(stderr, "glaunch: %s\n", text.c_str());
}

void check_environment() {
  static_cast<void>(logging::level());
  for (const std::string& sentence : env::misspelled_names()) {
    std::fprintf(stderr, "glaunch: warning: %s\n", escape_control_characters(sentence).c_str());
  }
}

machine::TopologyOptions topology_options(const std::optional<std::string>& file) {
  machine::TopologyOptions where = machine::topology_options_from_environment();
  if (file) where.file = *file;
  return where;
}

}  // namespace gantry::launcher
