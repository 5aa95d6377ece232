#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>
#include <gantry/memory/snapshot.hpp>

#include "core/files/atomic_file.hpp"
#include "core/files/output_stream.hpp"
#include "snapshots/snapshot_json.hpp"
#include "snapshots/snapshot_tool.hpp"

namespace gantry::memory {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_write_error(const fs::path& path, std::string_view cause) {
  throw Error(fmt::format("save_snapshot: failed to write '{}': {}", path.string(), cause));
}

// The program that makes a file with this name from JSON; none for .json itself.
std::optional<fs::path> tool_for(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".json") return std::nullopt;
  if (extension != ".pickle" && extension != ".html") {
    throw InvalidArgument(
        fmt::format("save_snapshot: expected a file name that ends in .pickle, .json or .html, but "
                    "got '{}'",
                    path.string()));
  }
  try {
    return find_snapshot_tool();
  } catch (const Error& error) {
    throw_write_error(path, error.what());
  }
}

// A JSON snapshot in a file without a name, in the folder of `path`.
UniqueFd write_unnamed_json(const Snapshot& snapshot, const fs::path& path) {
  const auto fail = [&](int code) {
    throw_write_error(path, std::strerror(code != 0 ? code : EIO));
  };
  std::string name = (path.parent_path() / ".gantry-snapshot-XXXXXX").string();
  UniqueFd file(mkostemp(name.data(), O_CLOEXEC));
  if (!file) fail(errno);
  unlink(name.c_str());
  UniqueFd copy(fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) fail(errno);
  OutputStream out(std::move(copy));
  write_json(snapshot, out);
  if (const int code = out.close(); code != 0) fail(code);
  if (lseek(file.get(), 0, SEEK_SET) != 0) fail(errno);
  return file;
}

void save_json(const Snapshot& snapshot, const fs::path& path) {
  AtomicFile file(path, "save_snapshot: ");
  write_json(snapshot, file.out());
  file.commit();
}

void save_with(const std::optional<fs::path>& tool, const Snapshot& snapshot,
               const fs::path& path) {
  if (!tool) return save_json(snapshot, path);
  const UniqueFd json = write_unnamed_json(snapshot, path);
  try {
    run_snapshot_tool(*tool, json.get(), path);
  } catch (const Error& error) {
    throw_write_error(path, error.what());
  }
}

}  // namespace

void save_snapshot(const fs::path& path) {
  const std::optional<fs::path> tool = tool_for(path);
  save_with(tool, snapshot(), path);
}

void save_snapshot(const Snapshot& snapshot, const fs::path& path) {
  save_with(tool_for(path), snapshot, path);
}

Snapshot load_snapshot(const fs::path& path) {
  if (path.extension() != ".json") {
    throw InvalidArgument(fmt::format(
        "load_snapshot: expected a file name that ends in .json, but got '{}'", path.string()));
  }
  return read_json_file(path, "load_snapshot: ");
}

}  // namespace gantry::memory
