#include "launcher/run/output/log_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/output_file.hpp"
#include "core/files/output_place.hpp"

namespace gantry::launcher {
namespace {

// Makes a folder and those above it; see Note [Files in folders of other users]. Returns why not.
std::string make_folders(const std::filesystem::path& folder) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : folder.lexically_normal()) {
    made /= part;
    if (part.empty() || part == "/" || part == "." || part == "..") continue;
    const OutputPlace place = find_output(made.native());
    if (!place.ok()) return place.problem;
    if (place.status) continue;
    if (mkdirat(place.folder.get(), place.name.c_str(), 0777) != 0 && errno != EEXIST) {
      return std::strerror(errno);
    }
  }
  return {};
}

}  // namespace

LogFiles::LogFiles(const OutputOptions& options, const Plan& plan)
    : directory_(options.log_dir.value_or("")) {
  if (!options.log_dir) return;
  if (const std::string problem = make_folders(directory_); !problem.empty()) {
    throw Error(fmt::format("--log-dir: cannot make '{}': {}", directory_, problem));
  }
  for (const RankPlan& rank : plan.ranks) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      const std::string name = path(rank.rank, stream);
      OutputFile opened = open_output(name);
      if (!opened.ok()) {
        throw Error(fmt::format("--log-dir: cannot write '{}': {}", name, opened.problem));
      }
      files_.push_back(std::move(opened.file));
    }
  }
}

int LogFiles::descriptor(int rank, Stream stream) const {
  if (files_.empty()) return -1;
  return files_[static_cast<std::size_t>(rank) * 2 + (stream == Stream::err ? 1 : 0)].get();
}

std::string LogFiles::path(int rank, Stream stream) const {
  return fmt::format("{}/rank{}.{}", directory_, rank, stream == Stream::out ? "out" : "err");
}

}  // namespace gantry::launcher
