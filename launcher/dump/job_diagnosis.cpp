// Findings about a job's failure from its flight files.
#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "launcher/dump/dump.hpp"

namespace gantry::launcher {

namespace {

constexpr std::size_t kMostSentences = 3;

bool is_broken(const flight::View& view) {
  return view.header().diagnosis.load(std::memory_order_acquire) != 0;
}

}  // namespace

std::vector<std::string> diagnose_job(const std::string& job) {
  std::vector<flight::OpenFile> files;
  try {
    files = find_flights(job);
  } catch (const Error&) {
    return {};  // no rank has made a group, or the folder is not this user's
  }
  const bool any_broken = std::any_of(files.begin(), files.end(),
                                      [](const auto& file) { return is_broken(file.view()); });
  std::vector<std::string> sentences;
  for (const flight::OpenFile& file : files) {
    if (sentences.size() == kMostSentences) break;
    if (any_broken && !is_broken(file.view())) continue;
    const GroupReport report = look_at(file);
    const std::vector<std::string> found = findings(file.view(), report.ranks);
    if (found.empty()) continue;
    // Ranks of other groups have other numbers than ranks of the job.
    sentences.push_back(report.group == "world"
                            ? found.front()
                            : fmt::format("group {}: {}", report.group, found.front()));
  }
  return sentences;
}

}  // namespace gantry::launcher
