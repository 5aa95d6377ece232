#include "tools/program/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path) {
  throw Error(fmt::format("cannot write '{}'", path));
}

bool write_in_place(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return !file.fail();
}

}  // namespace

void check_output(const std::string& path) {
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  const bool opened = std::ofstream(path, std::ios::binary | std::ios::app).is_open();
  if (!opened) refuse(path);
  if (!exists) fs::remove(path, ignored);
}

void write_output(const std::string& path, const std::string& text) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  // A pipe or a terminal has no old text, and must stay what it is.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (!write_in_place(path, text)) refuse(path);
    return;
  }
  // A link stays one: the file that it names is replaced.
  const std::string target = fs::exists(status) ? fs::canonical(path).string() : path;
  const std::string beside = fmt::format("{}.{}.tmp", target, getpid());
  std::error_code ignored;
  if (write_in_place(beside, text)) {
    if (fs::exists(status)) fs::permissions(beside, status.permissions(), ignored);
    fs::rename(beside, target, failure);
    if (!failure) return;
  }
  fs::remove(beside, ignored);
  refuse(path);
}

}  // namespace gantry
