// The program gantry-snapshot, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <gantry/memory/snapshot.hpp>

#include "tests/snapshots/snapshot_samples.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::snapshot {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Outcome;
using ::testing::StartsWith;

class SnapshotCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "output");
    save_snapshot(testing::awkward_snapshot(), folder_ / "run.json");
  }

  [[nodiscard]] std::string output(const std::string& name) const {
    return (folder_ / "output" / name).string();
  }
  [[nodiscard]] std::string input() const { return (folder_ / "run.json").string(); }

  static Outcome run(std::vector<std::string> arguments, std::string text = {}) {
    arguments.insert(arguments.begin(), GANTRY_TEST_SNAPSHOT);
    return testing::run_command({.argv = std::move(arguments), .input = std::move(text)});
  }

  /// Expects one line on stderr with `text`, exit code 2, and no file.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& text) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_THAT(outcome.err, StartsWith("gantry-snapshot: "));
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(fs::is_empty(folder_ / "output")) << text;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SnapshotCommandTest, MakesAPageAndAPickle) {
  Outcome outcome = run({input(), "-o", output("x.html")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "wrote " + output("x.html") + ": 1 segments, 9 events\n");
  EXPECT_THAT(content_of(output("x.html")), StartsWith("<!doctype html>"));
  outcome = run({input(), "--output=" + output("x.pickle")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(content_of(output("x.pickle")), StartsWith("\x80\x02}("));
}

TEST_F(SnapshotCommandTest, ReadsStandardInput) {
  const Outcome outcome = run({"-", "-o", output("x.html")}, content_of(input()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  ASSERT_EQ(run({input(), "-o", output("y.html")}).exit_code, 0);
  EXPECT_EQ(content_of(output("x.html")), content_of(output("y.html")));
}

TEST_F(SnapshotCommandTest, ReadsPicklesToo) {
  const std::string pickle = (folder_ / "run.pickle").string();
  ASSERT_EQ(run({input(), "-o", pickle}).exit_code, 0);
  Outcome outcome = run({pickle, "-o", output("again.pickle")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, EndsWith(": 1 segments, 9 events\n"));
  EXPECT_EQ(content_of(output("again.pickle")), content_of(pickle));
  outcome = run({"-", "-o", output("x.html")}, content_of(pickle));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(content_of(output("x.html")), StartsWith("<!doctype html>"));
}

// A snapshot of an old torch, in its protocol: no addresses of blocks, stacks in a history, a frame
// without a line, and an event that gantry does not know.
constexpr const char* kTorchSnapshot = R"(
import pickle, sys
frames = [{'filename': 'a.py', 'line': 2**64 - 1, 'name': 'f'}]
pickle.dump({
  'segments': [{'device': 0, 'address': 4096, 'total_size': 4096, 'stream': 0,
                'segment_type': 'small', 'allocated_size': 512, 'active_size': 1024, 'blocks': [
    {'size': 512, 'state': 'active_allocated', 'history': [{'addr': 4096, 'frames': frames}]},
    {'size': 512, 'state': 'active_awaiting_free'}, {'size': 3072, 'state': 'inactive'}]}],
  'device_traces': [[
    {'action': 'alloc', 'addr': 4096, 'size': 500, 'stream': 0, 'frames': frames},
    {'action': 'another', 'addr': 4096, 'size': 500, 'stream': 0, 'frames': frames},
    {'action': 'oom', 'device_free': 7, 'size': 500, 'stream': 0, 'frames': []}], []]},
  open(sys.argv[1], 'wb'), protocol=int(sys.argv[2])))";

TEST_F(SnapshotCommandTest, ReadsSnapshotsOfTorch) {
  const std::string pickle = (folder_ / "torch.pickle").string();
  for (const char* protocol : {"2", "3", "4", "5"}) {
    try {
      const Outcome written =
          testing::run_command({.argv = {"python3", "-c", kTorchSnapshot, pickle, protocol}});
      ASSERT_EQ(written.exit_code, 0) << written.describe();
    } catch (const std::system_error&) {
      GTEST_SKIP() << "python3 was not found";
    }
    const Outcome outcome = run({pickle, "-o", output("x.html")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, EndsWith(": 1 segments, 2 events\n"));
    EXPECT_THAT(content_of(output("x.html")), HasSubstr("a.py"));
  }
}

TEST_F(SnapshotCommandTest, RefusesPicklesThatAreNoSnapshots) {
  const auto expect_bad = [&](const std::string& bytes, const std::string& text) {
    std::ofstream(folder_ / "bad.pickle", std::ios::binary) << bytes;
    expect_refused({(folder_ / "bad.pickle").string(), "-o", output("x.html")}, text);
  };
  using namespace std::string_literals;
  expect_bad("\x80\x02}."s,
             "is no snapshot: snapshot: expected a dictionary with a list 'segments'");
  expect_bad("\x80\x02"s, "is no snapshot: pickle: the file ends within an entry");
  expect_bad("\x80\x02"s + "cos\nsystem\n.", "opcode GLOBAL would make an object or run code");
  expect_bad("\x80\x09."s, "expected a pickle of protocol 2 to 5");
}

TEST_F(SnapshotCommandTest, SaysWhatIsWrong) {
  expect_refused({}, "FILE is required");
  const std::string pipe = (folder_ / "pipe.json").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refused({pipe, "-o", output("x.html")}, "failed to read '" + pipe + "': a named pipe");
  expect_refused({input()}, "--output is required");
  expect_refused({input(), "-o", output("x.txt")}, "--output: expected a file .html or .pickle");
  expect_refused({"/none.json", "-o", output("x.html")},
                 "failed to read '/none.json': No such file");
  std::ofstream(folder_ / "bad.json") << content_of(input()).substr(0, 200);
  const std::string bad = (folder_ / "bad.json").string();
  expect_refused({(folder_ / "output").string(), "-o", output("x.html")}, "': a directory");
  expect_refused({bad, "-o", output("x.html")}, "'" + bad + "' is no snapshot: ");
  expect_refused({input(), "-o", "/none/x.html"}, "failed to write '/none/x.html': No such file");
}

// A device's number costs nothing: a page with two billion devices would never end.
TEST_F(SnapshotCommandTest, DeviceNumbersMayBeLarge) {
  memory::Snapshot snapshot = testing::awkward_snapshot();
  snapshot.segments.at(0).device = 2'000'000'000;
  save_snapshot(snapshot, folder_ / "large.json");
  const Outcome outcome = run({(folder_ / "large.json").string(), "-o", output("x.html")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(content_of(output("x.html")), HasSubstr("\"device\":2000000000"));
}

TEST_F(SnapshotCommandTest, ShowsItsHelp) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("gantry-snapshot run.json -o run.html"));
}

}  // namespace
}  // namespace gantry::snapshot
