#include "tools/program/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, int code) {
  throw Error(fmt::format("cannot write '{}'{}{}", path, code != 0 ? ": " : "",
                          code != 0 ? std::strerror(code) : ""));
}

// Returns an error number, 0 on success.
int write_in_place(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file.fail()) return 0;
  return errno != 0 ? errno : EIO;
}

}  // namespace

void check_output(const std::string& path) {
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  errno = 0;
  const bool opened = std::ofstream(path, std::ios::binary | std::ios::app).is_open();
  if (!opened) refuse(path, errno);
  if (!exists) fs::remove(path, ignored);
}

void write_output(const std::string& path, const std::string& text) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  // A pipe or a terminal has no old text, and must stay what it is.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (const int code = write_in_place(path, text); code != 0) refuse(path, code);
    return;
  }
  // A link stays one: the file that it names is replaced.
  const std::string target = fs::exists(status) ? fs::canonical(path).string() : path;
  const std::string beside = fmt::format("{}.{}.tmp", target, getpid());
  std::error_code ignored;
  int code = write_in_place(beside, text);
  if (code == 0) {
    if (fs::exists(status)) fs::permissions(beside, status.permissions(), ignored);
    fs::rename(beside, target, failure);
    if (!failure) return;
    code = failure.value();
  }
  fs::remove(beside, ignored);
  refuse(path, code);
}

}  // namespace gantry
