#include "tools/replay/log_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include <gantry/core/error.hpp>

#include "core/files/regular_file.hpp"
#include "tools/snapshot/pickle_reader.hpp"

namespace gantry::replay {
namespace {

std::string read_bytes(const std::string& path) {
  // Opening a pipe would wait for its writer. One that is open already is an input like others.
  const bool is_open = path.starts_with("/dev/fd/");
  if (const std::string problem = why_not_regular(path); !is_open && !problem.empty()) {
    throw Error(fmt::format("cannot read '{}': {}", path, problem));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file && !file.eof()) {
    throw Error(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  }
  return std::move(bytes).str();
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

AllocationSequence read_log(const std::string& path, std::optional<int> device) {
  const std::string bytes = read_bytes(path);
  const std::string name = base_name(path);
  try {
    if (is_dump(bytes)) return read_dump(bytes, name);
    if (snapshot::is_pickle(bytes)) {
      return read_snapshot(snapshot::read_pickle(bytes), name, device);
    }
    const std::size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && bytes[first] == '{') {
      return read_snapshot(snapshot::parse_json(bytes), name, device);
    }
    if (first != std::string::npos && is_rmm_log(std::string_view(bytes).substr(first))) {
      return read_rmm_log(bytes, name);
    }
    if (is_rmm_debug_log(bytes)) {
      throw InvalidArgument(
          "expected the CSV log of RMM's logging adaptor, but got RMM's debug log; record the "
          "allocations with logging_resource_adaptor, or with rmm.enable_logging() in Python");
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", path, error.what()));
  }
  throw InvalidArgument(fmt::format(
      "{}: expected a memory snapshot (.pickle or .json), a RMM log (.csv) or a replay dump, but "
      "the file begins otherwise",
      path));
}

}  // namespace gantry::replay
