// The output of `glaunch dump`, and its moments.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "launcher/failures/dump.hpp"

namespace gantry::launcher {

using flight::OpenFile;

namespace {

// Files that cannot be read and are younger may be groups that are being made.
constexpr auto kUnreadableAge = std::chrono::hours(24);
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

struct Selection {
  std::vector<OpenFile> files;
  std::size_t hidden = 0;  // groups of jobs that ended earlier
};

// The groups with a living rank, and all groups of the newest job that broke.
Selection select(std::vector<OpenFile> files, const DumpRequest& request) {
  Selection selection;
  if (request.all || !request.target.empty()) {
    selection.files = std::move(files);
    return selection;
  }
  std::optional<std::string> broken_job;
  for (OpenFile& file : files) {
    bool shown = true;
    if (file.is_over()) {
      const std::string job = escaped_field(file.view().header().job);
      // Groups without a job's name are jobs of their own.
      shown = !broken_job || (!job.empty() && job == *broken_job);
      if (!broken_job) broken_job = job;
    }
    if (shown) {
      selection.files.push_back(std::move(file));
    } else {
      ++selection.hidden;
    }
  }
  return selection;
}

// Removes the file if all ranks have ended.
bool clear_file(const OpenFile& file) { return file.is_over() && flight::remove_file(file.path()); }

std::string describe_hidden(std::size_t hidden) {
  if (hidden == 0) return {};
  return fmt::format("\n{} group{} of jobs that ended earlier: glaunch dump --all\n", hidden,
                     hidden == 1 ? "" : "s");
}

std::string nothing_found() {
  return fmt::format("no group of ranks has left a record in {}\n",
                     escape_control_characters(flight::folder()));
}

// The text that a follower shows.
struct Scene {
  std::string text;
  std::string progress;  // the text without ages: it changes when something happened
  bool over = true;
};

Scene look(const DumpRequest& request) {
  Scene scene;
  const Selection selection = select(find_flights(request.target), request);
  for (const OpenFile& file : selection.files) {
    GroupReport report = look_at(file);
    scene.text += (scene.text.empty() ? "" : "\n") + describe_group(report, file.view());
    report.now_ns = 0;
    for (RankReport& rank : report.ranks) rank.ended_ns_ago.reset();
    scene.progress += describe_group(report, file.view());
    scene.over = scene.over && file.is_over();
  }
  if (scene.text.empty()) scene.text = nothing_found();
  scene.text += describe_hidden(selection.hidden);
  return scene;
}

}  // namespace

std::string dump(const DumpRequest& request) {
  std::string text;
  Json groups = Json::array();
  std::size_t cleared = 0;
  const Selection selection = select(find_flights(request.target), request);
  for (const OpenFile& file : selection.files) {
    const GroupReport report = look_at(file);
    if (request.json) {
      groups.push_back(to_json(report, file.view()));
    } else {
      text += (text.empty() ? "" : "\n") + describe_group(report, file.view());
    }
    if (request.clear && clear_file(file)) ++cleared;
  }
  if (request.clear && request.target.empty()) {
    cleared += flight::remove_stale_files(0, kUnreadableAge);
  }
  if (request.json) return groups.dump(2) + "\n";
  if (text.empty()) text = nothing_found();
  if (request.clear) {
    return text + fmt::format("removed {} file(s) of groups whose ranks have all ended\n", cleared);
  }
  return text + describe_hidden(selection.hidden);
}

void follow_dump(const DumpRequest& request, std::chrono::milliseconds interval, bool redraws,
                 const std::function<void(const std::string& text)>& print) {
  std::optional<std::string> shown;
  for (;;) {
    Scene scene;
    try {
      scene = look(request);
    } catch (const InvalidArgument&) {
      if (!shown) throw;
      // Ranks that leave in order take the file with them.
      print(fmt::format("'{}' has ended\n", escape_control_characters(request.target)));
      return;
    }
    if (redraws) {
      print(kClearScreen + scene.text);
    } else if (!shown || *shown != scene.progress) {
      print(shown ? "\n" + scene.text : scene.text);
    }
    shown = std::move(scene.progress);
    if (scene.over && !request.target.empty()) return;
    std::this_thread::sleep_for(interval);
  }
}

}  // namespace gantry::launcher
