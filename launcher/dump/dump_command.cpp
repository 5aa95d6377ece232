#include "launcher/dump/dump_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "launcher/command/option_values.hpp"
#include "launcher/dump/dump.hpp"

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

constexpr const char* kFooter = R"(
Ranks of one machine write down every collective call in shared memory, where
it stays when they hang or are killed. For each group: its ranks, their newest
calls, and which rank waits for which.
To start a program called dump: glaunch -- dump)";

struct DumpLine {
  CommandLine line{"Prints what ranks are at in their collectives.", "glaunch dump"};
  DumpOptions options;
  std::string interval;

  DumpLine() {
    line.set_footer(kFooter);
    line.add_option("target", options.request.target,
                    "a job (GANTRY_JOB_ID), the process id of a rank, or a file with a slash "
                    "(jobs with living ranks, and the newest that broke)");
    line.add_flag("--all", options.request.all, "all jobs of this user");
    line.add_flag("--follow", options.follow, "print again when a rank got further");
    line.add_option("--interval", interval, "with --follow: time between looks (1s)").value("TIME");
    line.add_flag("--clear", options.request.clear,
                  "remove the records of groups whose ranks have all ended");
    line.add_flag("--json", options.request.json, "print JSON");
  }

  void read() {
    if (options.follow && options.request.json) {
      throw InvalidArgument("--follow and --json contradict each other");
    }
    if (options.follow && options.request.clear) {
      throw InvalidArgument("--follow and --clear contradict each other");
    }
    if (options.request.all && !options.request.target.empty()) {
      throw InvalidArgument("--all and a target contradict each other");
    }
    if (interval.empty()) return;
    if (!options.follow) throw InvalidArgument("--interval needs --follow");
    options.interval = parse_duration(interval, "--interval");
  }
};

ProgramDescription describe() { return DumpLine().line.description(); }

int run(const std::vector<std::string>& arguments) {
  const DumpOptions options = parse_dump(arguments);
  if (!options.help.empty()) {
    print(options.help);
  } else if (options.follow) {
    follow_dump(options.request, options.interval, isatty(STDOUT_FILENO) == 1, print);
  } else {
    print(dump(options.request));
  }
  return 0;
}

}  // namespace

DumpOptions parse_dump(const std::vector<std::string>& arguments) {
  return parse_as("dump", [&] {
    DumpLine dump;
    dump.options.help = dump.line.parse(arguments);
    if (dump.options.help.empty()) dump.read();
    return dump.options;
  });
}

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

const Command kDumpCommand{"dump", describe, run};

}  // namespace gantry::launcher
