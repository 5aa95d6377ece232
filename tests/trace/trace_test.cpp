#include <gantry/kernels/trace.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "core/text/json.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using gantry::testing::content_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::ThrowsMessage;

class TraceTest : public gantry::testing::DeviceTest {
 protected:
  static Json read(const std::filesystem::path& file) { return Json::parse(content_of(file)); }
  // The events of one category; all names if it is empty.
  static std::vector<Json> events(const Json& root, const std::string& category) {
    std::vector<Json> found;
    for (const Json& event : root.at("traceEvents").elements()) {
      if (event.value_or<std::string>("cat", "") == category) found.push_back(event);
    }
    return found;
  }
  static std::vector<std::string> names(const std::vector<Json>& events) {
    std::vector<std::string> all;
    for (const Json& event : events) all.push_back(event.at("name").as<std::string>());
    return all;
  }

  const gantry::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "trace.json";
};

TEST_F(TraceTest, HoldsOperationsKernelsAndMemory) {
  const Tensor a = ones({2, 3}, "cuda:0");
  const Tensor b = ones({3}, "cuda:0");
  synchronize();
  trace::start(path);
  EXPECT_TRUE(trace::is_recording());
  Tensor c = a.add(b);
  {
    trace::Range range("my part");
    c = matmul(c, c.t());
  }
  (void)c.cpu();
  const trace::TraceSummary summary = trace::stop();
  EXPECT_FALSE(trace::is_recording());
  EXPECT_EQ(summary.dropped, 0u);
  const Json root = read(path);
  EXPECT_EQ(root.at("gantry").at("events").as<std::size_t>(), summary.events);
  const std::vector<Json> ops = events(root, "op");
  EXPECT_THAT(names(ops), IsSupersetOf({"add", "matmul"}));
  const auto add = std::ranges::find(
      ops, "add", [](const Json& event) { return event.at("name").as<std::string>(); });
  EXPECT_EQ(add->at("args").at("operands").as<std::string>(), "f32[2, 3] f32[2, 3] f32[2, 3]");
  EXPECT_EQ(add->at("args").at("device").as<std::string>(), "cuda:0");
  EXPECT_THAT(add->at("args").value_or<std::string>("call site", "none"), ::testing::Not("none"));
  EXPECT_GE(add->at("dur").as<double>(), 0);
  EXPECT_THAT(names(events(root, "range")), Contains("my part"));
  const std::vector<Json> memory = events(root, "memory");
  ASSERT_FALSE(memory.empty());
  EXPECT_GE(memory.back().at("args").at("reserved").as<std::int64_t>(),
            memory.back().at("args").at("allocated").as<std::int64_t>());
  if (platform() != Platform::simulated) return;
  EXPECT_THAT(names(events(root, "kernel")), IsSupersetOf({"add", "matmul", "memcpy"}));
}

TEST_F(TraceTest, DeviceWorkStandsOnTheLinesOfItsStreams) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const Stream side = Stream::from_pool("cuda:1");
  trace::start(path);
  const Tensor a = ones({3}, "cuda:0").add(1);
  {
    StreamGuard guard(side);
    (void)ones({3}, "cuda:1").mul(2);
  }
  trace::stop();
  std::set<std::pair<std::int64_t, std::int64_t>> lines;
  for (const Json& event : events(read(path), "kernel")) {
    lines.insert({event.at("pid").as<std::int64_t>(), event.at("tid").as<std::int64_t>()});
  }
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines.begin()->first, 1) << "cuda:0 of rank 0";
  EXPECT_EQ(lines.begin()->second, 0) << "the default stream";
  EXPECT_EQ(lines.rbegin()->first, 2);
  EXPECT_NE(lines.rbegin()->second, 0);
}

TEST_F(TraceTest, NamesTheOperationsOfAProgram) {
  trace::start(path);
  Tensor t = arange(6, {.dtype = f32, .device = "cuda:0"}).view({2, 3});
  (void)t.exp();
  (void)t.sum(0);
  (void)t.softmax(1);
  (void)t.cumsum(0);
  (void)t.argmax();
  t.fill_(2);
  t.index_put_({0}, 7);
  (void)t.to(f64);
  (void)where(t.gt(2), t, t);
  (void)cat({t, t});
  trace::stop();
  EXPECT_THAT(
      names(events(read(path), "op")),
      IsSupersetOf({"exp", "sum", "softmax", "cumsum", "argmax", "fill", "gt", "where", "copy"}));
}

TEST_F(TraceTest, TimesLieInOrder) {
  trace::start(path);
  Tensor t = zeros({100}, "cuda:0");
  for (int i = 0; i < 20; ++i) t.add_(1);
  trace::stop();
  double last = 0;
  int count = 0;
  for (const Json& event : events(read(path), "op")) {
    EXPECT_GE(event.at("ts").as<double>() + event.at("dur").as<double>(), last);
    last = event.at("ts").as<double>();
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST_F(TraceTest, MemoryIsBoundedAndTheRestIsCounted) {
  Tensor t = zeros({4}, "cuda:0");
  trace::start(path, {.max_events = 10});
  for (int i = 0; i < 20; ++i) t.add_(1);
  const trace::TraceSummary summary = trace::stop();
  EXPECT_EQ(summary.events, 10u);
  EXPECT_GE(summary.dropped, 10u);
  EXPECT_EQ(read(path).at("gantry").at("dropped").as<std::uint64_t>(), summary.dropped);
}

TEST_F(TraceTest, ThreadsRecordTogether) {
  trace::start(path);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      Tensor t = zeros({4}, "cuda:0");
      for (int k = 0; k < 50; ++k) t.add_(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  trace::stop();
  std::set<std::int64_t> lines;
  int adds = 0;
  for (const Json& event : events(read(path), "op")) {
    if (event.at("name").as<std::string>() != "add") continue;
    lines.insert(event.at("tid").as<std::int64_t>());
    ++adds;
  }
  EXPECT_EQ(adds, 200);
  EXPECT_EQ(lines.size(), 4u);
}

TEST_F(TraceTest, NothingIsRecordedOutsideOfIt) {
  Tensor t = zeros({4}, "cuda:0");
  t.add_(1);
  trace::start(path);
  trace::stop();
  t.mul_(2);
  EXPECT_TRUE(events(read(path), "op").empty());
  trace::start(path);
  trace::stop();
  EXPECT_TRUE(events(read(path), "op").empty()) << "the second trace begins empty";
}

TEST_F(TraceTest, ScopesAndPlaceholders) {
  {
    const trace::Recording recording(folder / "part-{rank}-{pid}.json");
    (void)zeros({2}, "cuda:0").add(1);
  }
  const auto expected = folder / ("part-0-" + std::to_string(::getpid()) + ".json");
  EXPECT_FALSE(events(read(expected), "op").empty());
}

TEST_F(TraceTest, RefusesBadArguments) {
  EXPECT_THAT(
      [&] { trace::start(path, {.max_events = 0}); },
      ThrowsMessage<InvalidArgument>("trace::start: expected max_events of at least 1, but got 0"));
  EXPECT_THAT([&] { trace::start("trace.{host}.json"); },
              ThrowsMessage<InvalidArgument>(
                  "trace::start: expected the placeholders {rank} and {pid}, but got '{host}'"));
  EXPECT_THAT(
      [&] { trace::stop(); },
      ThrowsMessage<InvalidArgument>("trace::stop: expected a trace to be recorded, but got none"));
  trace::start(path);
  EXPECT_THAT([&] { trace::start(path); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got one for ")));
  trace::stop();
  trace::start(folder / "no" / "such" / "folder.json");
  EXPECT_THROW(trace::stop(), Error);
  EXPECT_FALSE(trace::is_recording()) << "it is over all the same";
  EXPECT_THROW(trace::merge({}, path), InvalidArgument);
  const std::vector<std::filesystem::path> missing{folder / "missing.json"};
  EXPECT_THAT([&] { trace::merge(missing, path); },
              ThrowsMessage<Error>(HasSubstr("missing.json")));
}

class TraceProcessTest : public TraceTest {
 protected:
  gantry::testing::Outcome run(const char* end, int rank = 0) {
    return gantry::testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/trace_program",
                                                  (folder / "rank-{rank}.json").string(), end},
                                         .environment = {{"RANK", std::to_string(rank)}}});
  }
};

TEST_F(TraceProcessTest, CollectivesTellCallBytesAndAlgorithm) {
  const gantry::testing::Outcome outcome = run("stop");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::vector<Json> calls = events(read(folder / "rank-0.json"), "collective");
  ASSERT_THAT(names(calls), Contains("all_reduce"));
  EXPECT_EQ(calls[0].at("args").at("bytes").as<int>(), 4000);
  EXPECT_EQ(calls[0].at("args").at("ranks").as<int>(), 1);
}

TEST_F(TraceProcessTest, ANormalExitWritesTheFile) {
  const gantry::testing::Outcome outcome = run("exit");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(names(events(read(folder / "rank-0.json"), "op")), Contains("add"));
}

TEST_F(TraceProcessTest, AKilledProcessLeavesNoBrokenFile) {
  const gantry::testing::Outcome outcome = run("kill");
  EXPECT_EQ(outcome.signal, SIGKILL) << outcome.describe();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(TraceProcessTest, RanksAreMerged) {
  ASSERT_EQ(run("stop", 0).exit_code, 0);
  const auto first = folder / "rank-0.json";
  // The other rank, as of another machine whose trace began 2 ms later.
  Json second = read(first);
  Json origin = second.at("gantry");
  origin.set("rank", 1);
  origin.set("boot", "another machine's");
  origin.set("start_unix_ns", origin.at("start_unix_ns").as<std::int64_t>() + 2'000'000);
  second.set("gantry", origin);
  const auto other = folder / "rank-1.json";
  std::ofstream(other) << second.dump();
  const std::vector<std::filesystem::path> parts{first, other};
  trace::merge(parts, path);
  const Json merged = read(path);
  const std::vector<Json> ops = events(merged, "op");
  const std::vector<Json> own = events(second, "op");
  ASSERT_EQ(ops.size(), 2 * own.size());
  EXPECT_NEAR(ops[own.size()].at("ts").as<double>() - ops[0].at("ts").as<double>(), 2000, 0.01);
  const std::vector<std::filesystem::path> twice{first, first};
  EXPECT_THAT([&] { trace::merge(twice, path); },
              ThrowsMessage<InvalidArgument>(
                  "merge: expected one trace of each rank, but got two of rank 0"));
  EXPECT_EQ(read(path), merged) << "a refusal leaves the file";
  const std::vector<std::filesystem::path> foreign{path};
  EXPECT_THAT([&] { trace::merge(foreign, folder / "out.json"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("merge: expected a trace of gantry")));
}

}  // namespace
}  // namespace gantry
