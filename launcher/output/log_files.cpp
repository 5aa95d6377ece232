#include "launcher/output/log_files.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/output_file.hpp"

namespace gantry::launcher {

LogFiles::LogFiles(const Options& options, const Plan& plan)
    : directory_(options.log_dir.value_or("")) {
  if (!options.log_dir) return;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    throw Error(fmt::format("--log-dir: cannot make '{}': {}", directory_, error.message()));
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
