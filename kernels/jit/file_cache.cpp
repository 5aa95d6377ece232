#include "kernels/jit/file_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "core/files/output_file.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/sha256.hpp"
#include "kernels/jit/counts.hpp"

namespace gantry::kernels::jit {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "gantry jit 1\n";
constexpr off_t kMostBytes = off_t{64} << 20;

void warn_once(const std::string& text) noexcept {
  static std::mutex mutex;
  static std::set<std::string>& told = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told.insert(text).second) logging::warn(text);
}

// Why a file or folder of `status` does not count; empty if it does.
std::string problem_of(const struct stat& status, mode_t kind, const char* kind_name) {
  if ((status.st_mode & S_IFMT) != kind) return fmt::format("it is no {}", kind_name);
  if (status.st_uid != geteuid()) return fmt::format("it belongs to user {}", status.st_uid);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("its mode {:o} lets others write it", status.st_mode & 07777);
  }
  return {};
}

// The opened folder; none where there is none or where it does not count.
UniqueFd open_folder(const std::string& path, bool make) {
  if (path.empty()) return {};
  if (make) {
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    (void)mkdir(path.c_str(), 0700);
  }
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  std::string problem;
  if (!folder) {
    if (errno == ENOENT && !make) return {};
    problem = std::strerror(errno);
  } else {
    struct stat status {};
    problem = fstat(folder.get(), &status) != 0 ? std::strerror(errno)
                                                : problem_of(status, S_IFDIR, "folder");
  }
  if (problem.empty()) return folder;
  warn_once(fmt::format("jit: the folder '{}' of compiled programs is not used: {}",
                        escape_control_characters(path), problem));
  return {};
}

std::string name_of(const std::string& key) { return key + ".bin"; }

// Everything but the content.
std::string head_of(const std::string& key, std::string_view content) {
  return fmt::format("{}{}\n{}\n", kMagic, key, sha256_hex(content));
}

// Reads the whole file and returns its content, or sets `problem`.
std::string read_checked(int file, const std::string& key, std::string& problem) {
  struct stat status {};
  if (fstat(file, &status) != 0) {
    problem = std::strerror(errno);
    return {};
  }
  problem = problem_of(status, S_IFREG, "regular file");
  if (problem.empty() && status.st_size > kMostBytes) problem = "it is too large";
  if (!problem.empty()) return {};
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t count =
        pread(file, text.data() + got, text.size() - got, static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    got += static_cast<std::size_t>(count);
  }
  const std::size_t head = head_of(key, {}).size();
  if (got < text.size() || text.size() < head || !text.starts_with(kMagic)) {
    problem = "it is damaged";
    return {};
  }
  std::string content = text.substr(head);
  if (head_of(key, content) != std::string_view(text).substr(0, head)) {
    problem = "its content is not what its head says";
    return {};
  }
  return content;
}

}  // namespace

Counts& count() {
  static Counts counts;
  return counts;
}

std::string cache_folder() {
  if (const auto named = env::get("GANTRY_JIT_CACHE")) return *named;
  // Relative paths are invalid there, says the XDG specification.
  if (const std::string base = env::get("XDG_CACHE_HOME").value_or(""); base.starts_with('/')) {
    return base + "/gantry/jit";
  }
  const std::string home = env::get("HOME").value_or("");
  return home.starts_with('/') ? home + "/.cache/gantry/jit" : std::string();
}

std::optional<std::string> read_cached(const std::string& key) {
  const std::string path = cache_folder();
  const UniqueFd folder = open_folder(path, false);
  if (!folder) return std::nullopt;
  // O_NONBLOCK: a named pipe would otherwise wait for a writer.
  const UniqueFd file(openat(folder.get(), name_of(key).c_str(),
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  std::string problem;
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    problem = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
  } else {
    std::string content = read_checked(file.get(), key, problem);
    if (problem.empty()) {
      count().loaded.fetch_add(1, std::memory_order_relaxed);
      return content;
    }
  }
  count().refused.fetch_add(1, std::memory_order_relaxed);
  warn_once(fmt::format("jit: the file '{}/{}' is not used: {}; its program is compiled again",
                        escape_control_characters(path), name_of(key), problem));
  return std::nullopt;
}

void write_cached(const std::string& key, std::string_view content) noexcept try {
  const std::string path = cache_folder();
  const UniqueFd folder = open_folder(path, true);
  if (!folder) return;
  static std::atomic<unsigned> number{0};
  const std::string temporary =
      fmt::format("{}.{}.{}.tmp", name_of(key), getpid(), number.fetch_add(1));
  const UniqueFd file(openat(folder.get(), temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_written =
      file && write_all(file.get(), head_of(key, content)) && write_all(file.get(), content) &&
      renameat(folder.get(), temporary.c_str(), folder.get(), name_of(key).c_str()) == 0;
  if (is_written) return;
  const int code = errno;
  if (file) unlinkat(folder.get(), temporary.c_str(), 0);
  warn_once(fmt::format("jit: a compiled program is not kept in '{}': {}",
                        escape_control_characters(path), std::strerror(code)));
} catch (const std::exception& error) {
  warn_once(fmt::format("jit: a compiled program is not kept: {}", error.what()));
}

}  // namespace gantry::kernels::jit
