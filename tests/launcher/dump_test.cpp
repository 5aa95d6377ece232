#include "launcher/dump/dump.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include <gantry/core/error.hpp>

#include "core/processes/process_stamp.hpp"
#include "core/text/json.hpp"
#include "launcher/dump/dump_command.hpp"
#include "launcher/run/job_line.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry::launcher {
namespace {

using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;
using testing::run_command;

RankProcesses start(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor");
  return RankProcesses(RankCommand{
      .ranks = ranks, .argv = std::move(arguments), .environment = {{"GANTRY_JOB_ID", "train-7"}}});
}

std::string glaunch_dump(std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {std::string(GANTRY_TEST_GLAUNCH), std::string("dump")});
  const Outcome outcome = run_command({.argv = std::move(arguments)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  return outcome.out;
}

Json only_group(const std::string& text) {
  Json groups = Json::parse(text);
  EXPECT_EQ(groups.size(), 1U) << text;
  return groups.size() == 0 ? Json::object() : groups.at(0);
}

TEST(DumpTest, TellsWhoWaitsForWhomWhileRanksHang) {
  const FlightFolder folder;
  RankProcesses ranks = start(4, {"absence", "3", "call"});
  for (const int rank : {0, 1, 2}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(3, "ready"));
  const std::string text = glaunch_dump();
  EXPECT_THAT(text, HasSubstr("group world of 4 rank(s), job train-7\n"));
  EXPECT_THAT(text,
              HasSubstr(fmt::format(
                  "rank 0: pid {}, alive\n    collectives: enqueued #2, waits in #2 all_reduce "
                  "sum f32[1000] by ",
                  ranks[0].pid())));
  EXPECT_THAT(text, HasSubstr(fmt::format("rank 3: pid {}, alive\n    collectives: enqueued #1, "
                                          "last #1 all_reduce sum f32[10] by ",
                                          ranks[3].pid())));
  EXPECT_THAT(text, HasSubstr("=> rank 3 has not called #2 all_reduce sum f32[1000]; ranks 0-2 "
                              "wait for it\n"));

  // By job and by process, in JSON.
  const Json group = only_group(glaunch_dump({"--json", "train-7"}));
  EXPECT_EQ(group.at("ranks").at(1).at("collectives").at("started"), 2);
  EXPECT_LE(group.at("ranks").at(1).at("collectives").at("finished").as<int>(), 1);
  EXPECT_EQ(group.at("ranks").at(1).at("calls").at(0).at("call"), "all_reduce sum f32[1000]");
  EXPECT_GE(group.at("ranks").at(1).at("calls").at(0).at("age_s").as<double>(), 0);
  EXPECT_EQ(group.at("ranks").at(3).at("pid"), ranks[3].pid());
  EXPECT_EQ(only_group(glaunch_dump({"--json", std::to_string(ranks[2].pid())})).at("file"),
            group.at("file"));
  EXPECT_EQ(
      only_group(glaunch_dump({group.at("file").as<std::string>(), "--json"})).at("diagnosis"),
      group.at("diagnosis"));
  // Nothing of a job that runs is removed.
  EXPECT_THAT(glaunch_dump({"--clear"}), HasSubstr("\nremoved 0 file(s)"));
  EXPECT_EQ(flight::list_files().size(), 1U);
}

TEST(DumpTest, TellsWhoDiedAfterItWasKilledAndAfterAllHaveEnded) {
  const FlightFolder folder;
  RankProcesses ranks = start(3, {"absence", "1", "call"});
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(1, "ready"));
  ranks.kill(1);
  ranks[1].wait();
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "lost rank 1")) << rank;
  const std::string diagnosis =
      "=> rank 1 died before it called #2 all_reduce sum f32[1000]; the group is broken\n";
  std::string text = glaunch_dump();
  EXPECT_THAT(text, ::testing::ContainsRegex("rank 1: pid [0-9]+, ended [0-9.]+ m?s ago\n"));
  EXPECT_THAT(text, HasSubstr(diagnosis));
  for (const int rank : {0, 2}) {
    ranks.go(rank);
    ranks[rank].wait();
  }
  text = glaunch_dump({"train-7"});
  EXPECT_THAT(text, HasSubstr(diagnosis));
  EXPECT_THAT(text, HasSubstr(fmt::format("rank 0: pid {}, ended, left", ranks[0].pid())));
  EXPECT_THAT(glaunch_dump({"--clear"}), HasSubstr("removed 1 file(s)"));
  EXPECT_THAT(flight::list_files(), IsEmpty());
  EXPECT_THAT(glaunch_dump(), HasSubstr("no group of ranks has left a record in " + folder.path()));
}

TEST(DumpTest, NamesDifferentCallsAfterTheError) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"mismatch"});
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "ready")) << rank;
  EXPECT_THAT(glaunch_dump(),
              HasSubstr("=> ranks 0 and 1 made different calls as #2: rank 0 called all_reduce sum "
                        "f32[30], rank 1 called all_reduce sum f32[20]\n"));
}

TEST(DumpTest, TellsAStoppedRankFromADeadOne) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"stop"});
  ASSERT_TRUE(ranks.says(0, "waiting"));
  const std::string stopped = fmt::format("rank 1: pid {}, stopped\n", ranks[1].pid());
  std::string text;
  do {
    text = glaunch_dump();
  } while (text.find(stopped) == std::string::npos && !HasFailure());
  EXPECT_THAT(text, HasSubstr("=> rank 1 is stopped and has not started #2 all_reduce sum "
                              "f32[1000]; rank 0 waits for it\n"));
}

TEST(DumpTest, NamesTheOtherSideOfAMessage) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"unreceived"});
  std::string text;
  do {
    text = glaunch_dump();
  } while (text.find("sends: enqueued #1, waits in #1 send") == std::string::npos && !HasFailure());
  EXPECT_THAT(text, HasSubstr("=> rank 0 waits in #1 send f32[8388608] to 1; rank 1 is not "
                              "receiving from it\n"));
}

// A group's file with one call per rank; all ranks are this process.
class WrittenGroup {
 public:
  WrittenGroup(const std::string& name, int ranks, const std::string& job = "") {
    flight::Header header{};
    flight::View::lay_out(header, ranks, static_cast<std::size_t>(getpagesize()));
    file_ = flight::create_file(name, header.bytes);
    base_ = mmap(nullptr, header.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.descriptor, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("mmap: " + file_.failure);
    bytes_ = header.bytes;
    header.version = flight::kVersion;
    std::snprintf(header.boot, sizeof header.boot, "%s", boot_id().c_str());
    header.kinds[0] = {"barrier", flight::kBare};
    header.kinds[1] = {"send", flight::kTo};
    header.kinds[2] = {"recv", flight::kFrom};
    std::snprintf(header.job, sizeof header.job, "%s", job.c_str());
    std::memcpy(base_, static_cast<const void*>(&header), sizeof header);
    view().header().magic.store(flight::kMagic);
  }
  ~WrittenGroup() {
    munmap(base_, bytes_);
    close(file_.descriptor);
  }
  WrittenGroup(const WrittenGroup&) = delete;
  WrittenGroup& operator=(const WrittenGroup&) = delete;

  flight::View view() const { return flight::View(base_); }
  /// Writes the rank down with its call of a kind above.
  void call(int rank, std::uint8_t kind, std::uint64_t number, int partner = -1,
            std::string_view tag = {}) {
    const ProcessStamp self = this_process();
    view().rank(rank).pid = self.pid;
    view().rank(rank).start_time = self.start_time;
    flight::Record record{};
    record.call.number = static_cast<std::int64_t>(number);
    record.call.kind = kind;
    record.call.root = partner;
    record.call.scale = 1;
    record.call.reproducible = 1;
    std::memcpy(record.tag, tag.data(), tag.size());
    view().ring(rank)[1].put(1, record);
    view().rank(rank).recorded.store(1);
  }
  /// Makes the rank's process one that has ended.
  void end(int rank) { ++view().rank(rank).start_time; }
  /// Makes the file that many seconds older than the newest.
  void set_age(int seconds) {
    const timespec time{1'700'000'000 - seconds, 0};
    const timespec times[2] = {time, time};
    if (futimens(file_.descriptor, times) != 0) throw std::runtime_error("futimens");
  }
  const std::string& path() const { return file_.path; }
  std::string describe() const { return dump({.target = file_.path}); }
  Json json() const { return only_group(dump({.target = file_.path, .json = true})); }

 private:
  flight::NewFile file_;
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

std::uint64_t run_of(std::uint64_t number, std::uint64_t run) {
  return run << flight::kRunShift | number;
}

TEST(DumpTest, ACallHasTheTagOfItsCaller) {
  const FlightFolder folder;
  WrittenGroup group("tagged", 2);
  group.call(0, 0, 1, -1, "end of step 7");
  group.call(1, 0, 1, -1, "a tag that takes up all 32 bytes");
  group.view().words(0).started = 1;
  EXPECT_THAT(group.describe(), HasSubstr("waits in #1 barrier tag=end of step 7 by "));
  EXPECT_THAT(group.describe(), HasSubstr("#1 barrier tag=a tag that takes up all 32 bytes by "));
  const Json rank = group.json().at("ranks").at(0);
  EXPECT_EQ(rank.at("calls").at(0).at("call").as<std::string>(), "barrier tag=end of step 7");
}

TEST(DumpTest, ACallThatAGraphRunsAgainIsUnderWay) {
  const FlightFolder folder;
  WrittenGroup messages("messages", 2);
  const std::uint64_t number = flight::kMessageBit | 1;
  messages.call(0, 1, number, 1);
  messages.call(1, 2, number, 0);
  flight::Words& sender = messages.view().words(0);
  flight::Words& receiver = messages.view().words(1);
  sender.message_started[0] = sender.message_finished[0] = run_of(number, 4);
  receiver.message_started[1] = receiver.message_finished[1] = run_of(number, 4);
  EXPECT_THAT(messages.describe(), HasSubstr("=> no call is under way\n"));
  EXPECT_EQ(messages.json().at("ranks").at(0).at("sends").at("under_way"), false);

  sender.message_started[0] = run_of(number, 5);
  const std::string text = messages.describe();
  EXPECT_THAT(text, HasSubstr("sends: enqueued #1, waits in #1 send to 1 by "));
  EXPECT_THAT(text, HasSubstr("receives: enqueued #1, last #1 recv from 0 by "));
  EXPECT_THAT(text,
              HasSubstr("=> rank 0 waits in #1 send to 1; rank 1 is not receiving from it\n"));
  EXPECT_EQ(messages.json().at("ranks").at(0).at("sends").at("under_way"), true);

  // Both sides are there.
  receiver.message_started[1] = run_of(number, 5);
  EXPECT_THAT(messages.describe(), HasSubstr("receives: enqueued #1, waits in #1 recv from 0"));
  EXPECT_EQ(messages.json().at("diagnosis").at(0),
            "calls are under way whose other sides are there");

  WrittenGroup collectives("collectives", 2);
  for (const int rank : {0, 1}) {
    collectives.call(rank, 0, 7);
    flight::Words& words = collectives.view().words(rank);
    words.finished = run_of(7, 4);
    words.started = run_of(7, 5);
  }
  EXPECT_THAT(collectives.describe(), HasSubstr("=> all ranks are in #7 barrier\n"));
}

TEST(DumpTest, ShowsLivingJobsAndTheNewestThatBroke) {
  const FlightFolder folder;
  WrittenGroup first("first", 1, "monday");
  WrittenGroup world("world", 1, "tuesday");
  WrittenGroup part("part", 1, "tuesday");
  WrittenGroup nameless("nameless", 1);
  WrittenGroup living("living", 1, "today");
  for (WrittenGroup* group : {&living, &first, &world, &part, &nameless}) group->call(0, 0, 7);
  for (WrittenGroup* group : {&first, &world, &part, &nameless}) group->end(0);
  // From the newest to the oldest; a job that lives may have begun long ago.
  int age = 0;
  for (WrittenGroup* group : {&part, &nameless, &world, &first, &living}) group->set_age(age++);
  const auto shown = [](const DumpRequest& request) {
    std::vector<std::string> names;
    std::istringstream text(dump(request));
    for (std::string line; std::getline(text, line);) {
      const std::size_t slash = line.rfind("/");
      if (line.starts_with("  /")) {
        names.push_back(line.substr(slash + 1, line.rfind(".flight") - slash - 1));
      }
      if (line.find("--all") != std::string::npos) names.push_back(line);
    }
    return names;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(shown({}), ElementsAre("part", "world", "living",
                                     "2 groups of jobs that ended earlier: glaunch dump --all"));
  EXPECT_THAT(shown({.all = true}), ElementsAre("part", "nameless", "world", "first", "living"));
  EXPECT_THAT(shown({.target = "monday"}), ElementsAre("first"));
  EXPECT_EQ(Json::parse(dump({.json = true})).size(), 3U);
  EXPECT_EQ(Json::parse(dump({.all = true, .json = true})).size(), 5U);
  // What is not shown is removed, too.
  EXPECT_THAT(dump({.clear = true}), HasSubstr("removed 4 file(s)"));
  EXPECT_THAT(shown({.all = true}), ElementsAre("living"));
}

TEST(DumpTest, FollowsAJobToItsEnd) {
  const FlightFolder folder;
  WrittenGroup group("group", 1, "train-7");
  group.call(0, 0, 7);
  std::vector<std::string> shown;
  follow_dump({.target = "train-7"}, std::chrono::milliseconds(0), false,
              [&](const std::string& text) {
                shown.push_back(text);
                if (shown.size() == 1) group.view().words(0).started = 7;
                if (shown.size() == 2) group.end(0);
              });
  ASSERT_EQ(shown.size(), 3U);
  EXPECT_THAT(shown[0], HasSubstr("enqueued #7, last #7 barrier"));
  EXPECT_THAT(shown[1], HasSubstr("enqueued #7, waits in #7 barrier"));
  EXPECT_THAT(shown[2], HasSubstr(", ended"));
  EXPECT_THROW(follow_dump({.target = "nobody"}, std::chrono::milliseconds(0), false,
                           [](const std::string&) {}),
               InvalidArgument);
}

TEST(DumpTest, FollowingEndsWhenTheRanksLeaveInOrder) {
  const FlightFolder folder;
  auto group = std::make_unique<WrittenGroup>("group", 1, "train-7");
  group->call(0, 0, 7);
  std::vector<std::string> shown;
  follow_dump({.target = "train-7"}, std::chrono::milliseconds(0), true,
              [&](const std::string& text) {
                shown.push_back(text);
                flight::remove_file(group->path());
              });
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_THAT(shown[0], ::testing::StartsWith("\x1b[H\x1b[2Jgroup "));
  EXPECT_EQ(shown[1], "'train-7' has ended\n");
}

// Everything in a file that a person sees was written by another process.
TEST(DumpTest, NothingInAFileReachesTheTerminalAsAControl) {
  const FlightFolder folder;
  WrittenGroup group("odd", 2);
  group.call(0, 0, 7);
  group.call(1, 1, flight::kMessageBit | 1, 0);
  flight::Header& header = group.view().header();
  const auto poison = [](auto& field) { std::snprintf(field, sizeof field, "x\x1b[2J\ny\x9b"); };
  poison(header.group);
  poison(header.job);
  poison(header.path);
  for (auto* names : {header.kinds, header.ops, header.algorithms}) {
    for (int i = 0; i < 16; ++i) poison(names[i].text);
  }
  for (const int rank : {0, 1}) {
    poison(group.view().rank(rank).host);
    poison(group.view().rank(rank).device);
    poison(group.view().rank(rank).detail);
  }
  for (const flight::Reason reason :
       {flight::Reason::mismatch, flight::Reason::timed_out, flight::Reason::died}) {
    header.diagnosis.store(flight::Diagnosis{reason, 1, 7}.pack());
    const std::string text = group.describe();
    EXPECT_THAT(text, HasSubstr("group x\\x1b[2J\\x0ay\\x9b of 2 rank(s)"));
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\x9b")));
  }
  EXPECT_EQ(group.json().at("job"), "x\\x1b[2J\\x0ay\\x9b");
}

TEST(DumpTest, SaysWhyAFolderIsNotRead) {
  const FlightFolder folder;
  std::filesystem::create_directory(flight::folder());
  ASSERT_EQ(chmod(flight::folder().c_str(), 0755), 0);
  const Outcome outcome = run_command({.argv = {GANTRY_TEST_GLAUNCH, "dump"}});
  EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("dump: failed to read the flight folder: " + flight::folder() +
                                     " is open to other users; set "
                                     "GANTRY_FLIGHT_DIR"));
}

// Nobody else can look into such a folder.
TEST(DumpTest, AFolderOfAnotherUserIsToldAndReplaced) {
  const FlightFolder folder;
  const std::string usual = flight::folder();
  std::filesystem::create_directory(usual);
  ASSERT_EQ(chmod(usual.c_str(), 0700), 0);
  if (chown(usual.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "only root gives folders away";
  const Outcome before = run_command({.argv = {GANTRY_TEST_GLAUNCH, "dump"}});
  EXPECT_NE(before.exit_code, 0) << before.describe();
  EXPECT_THAT(before.err, HasSubstr("dump: failed to read the flight folder: " + usual +
                                    " was made by another user (65534); set GANTRY_FLIGHT_DIR"));
  const WrittenGroup group("replaced", 1);
  const Outcome after = run_command({.argv = {GANTRY_TEST_GLAUNCH, "dump", "--all"}});
  EXPECT_EQ(after.exit_code, 0) << after.describe();
  EXPECT_THAT(after.out, HasSubstr(usual + "."));
}

TEST(DumpTest, WhatIsNotThereIsAnError) {
  const FlightFolder folder;
  try {
    (void)find_flights("nobody");
    ADD_FAILURE() << "found something";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()),
              "dump: expected a job, a process or a file with a group of ranks, but found none of "
              "'nobody' in " +
                  flight::folder());
  }
  const std::string path = folder.path() + "/noise";
  std::ofstream(path) << std::string(100'000, 'x');
  EXPECT_THROW((void)find_flights(path), InvalidArgument);
  EXPECT_THROW((void)find_flights(folder.path() + "/missing"), InvalidArgument);
  // A pipe that nobody writes to: opening it the usual way would wait for somebody.
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW((void)find_flights(pipe), InvalidArgument);
  EXPECT_THAT(find_flights(""), IsEmpty());
  EXPECT_EQ(Json::parse(dump({.json = true})), Json::array());
}

TEST(DumpTest, AGroupThatIsBeingMadeIsNotOver) {
  const FlightFolder folder;
  // As rank 0 leaves it until the others have come.
  flight::Header header{};
  flight::View::lay_out(header, 2, static_cast<std::size_t>(getpagesize()));
  header.version = flight::kVersion;
  header.magic.store(flight::kMagic);
  const flight::NewFile file = flight::create_file("new", header.bytes);
  ASSERT_GE(file.descriptor, 0) << file.failure;
  ASSERT_EQ(pwrite(file.descriptor, &header, sizeof header, 0),
            static_cast<ssize_t>(sizeof header));
  EXPECT_THAT(dump({}), HasSubstr("=> no rank has come yet\n"));
  EXPECT_THAT(dump({.clear = true}), HasSubstr("removed 0 file(s)"));
  EXPECT_THAT(dump({.target = file.path, .clear = true}), HasSubstr("removed 0 file(s)"));
  EXPECT_EQ(flight::list_files().size(), 1U);
  // Unless nobody has come for a day.
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(futimens(file.descriptor, long_ago), 0);
  EXPECT_THAT(dump({.clear = true}), HasSubstr("removed 1 file(s)"));
  close(file.descriptor);
}

TEST(DumpTest, TheCommandLineIsChecked) {
  const DumpOptions options = parse_dump({"--json", "--clear", "4711"});
  EXPECT_TRUE(options.request.json);
  EXPECT_TRUE(options.request.clear);
  EXPECT_EQ(options.request.target, "4711");
  EXPECT_EQ(parse_dump({}).request.target, "");
  EXPECT_FALSE(parse_dump({}).request.all);
  EXPECT_TRUE(parse_dump({"--all"}).request.all);
  EXPECT_EQ(parse_dump({"--follow", "--interval", "20ms"}).interval, std::chrono::milliseconds(20));
  for (const auto& [arguments, text] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--follow", "--json"}, "dump: --follow and --json contradict each other"},
           {{"--follow", "--clear"}, "dump: --follow and --clear contradict each other"},
           {{"--all", "4711"}, "dump: --all and a target contradict each other"},
           {{"--interval", "1s"}, "dump: --interval needs --follow"},
           {{"--folow"}, "dump: unknown option '--folow' (did you mean '--follow'?)"}}) {
    try {
      (void)parse_dump(arguments);
      ADD_FAILURE() << "accepted: " << ::testing::PrintToString(arguments);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
  EXPECT_EQ(parse_job({"--", "dump", "x"}).command, (std::vector<std::string>{"dump", "x"}));
  EXPECT_THAT(parse_dump({"--help"}).help, HasSubstr("--clear"));
  EXPECT_THROW((void)parse_dump({"--fast"}), InvalidArgument);
  EXPECT_THROW((void)parse_dump({"one", "two"}), InvalidArgument);
}

}  // namespace
}  // namespace gantry::launcher
