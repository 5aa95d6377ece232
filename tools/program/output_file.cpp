#include "tools/program/output_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <gantry/core/error.hpp>

#include "core/files/atomic_file.hpp"

namespace gantry {

namespace fs = std::filesystem;

void check_output(const std::string& path) {
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app).is_open()) {
    throw Error(fmt::format("failed to write '{}': {}", path, std::strerror(errno)));
  }
  if (!exists) fs::remove(path, ignored);
}

void write_output(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.out() << text;
  file.commit();
}

}  // namespace gantry
