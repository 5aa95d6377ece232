// The programs gantry-bench and gantry-tune, from outside, on simulated devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "collectives/selection/selector.hpp"
#include "core/text/json.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/scheduled.hpp"
#include "tests/support/subprocess.hpp"
#include "tools/bench/comm_bench.hpp"
#include "tools/bench/operation.hpp"
#include "tools/bench/report.hpp"
#include "tools/replay/worker.hpp"
#include "tools/tune/rows.hpp"

namespace gantry::bench {
namespace {

using replay::TemporaryFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::is_scheduled;
using testing::Outcome;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::optional<std::string>>;

constexpr const char* kBench = GANTRY_TEST_BENCH;
constexpr const char* kTune = GANTRY_TEST_TUNE;

// Few sizes and calls: what is tested is the programs, not the speed of a simulation.
const Words kShort{"-b",  "8", "-e", "32K", "-f", "64",        "-n", "2",
                   "-w",  "1", "-G", "3",   "-q", "--batches", "3",  "--max-seconds",
                   "0.05"};

Words operator+(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Outcome run(const Words& words, Variables environment = {}) {
  environment.insert({{"GANTRY_SIM_DEVICES", "4"},
                      {"GANTRY_COLL_ALGO", std::nullopt},
                      {"GANTRY_COLL_TABLE", std::nullopt}});
  return testing::run_command(
      {.argv = words,
       .environment = environment,
       .timeout = std::chrono::seconds(testing::kIsSanitized ? 1000 : 400)});
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every operation was measured eagerly and in graphs, was checked, and has sound figures.
void expect_all_measured(const Report& report, int ranks) {
  EXPECT_EQ(report.ranks, ranks);
  EXPECT_EQ(report.device, "Simulated GPU");
  EXPECT_THAT(report.library, HasSubstr("gantry "));
  std::set<std::string> measured;
  for (const Row& row : report.rows) {
    SCOPED_TRACE(row_text(row));
    EXPECT_EQ(row.note, "");
    EXPECT_EQ(row.wrong, 0);
    EXPECT_GT(row.time_us, 0);
    EXPECT_LE(row.min_us, row.p50_us);
    EXPECT_LE(row.p50_us, row.p99_us);
    EXPECT_GE(row.calls, 1);
    const double factor = bus_factor(parse_operation(row.operation), ranks);
    EXPECT_NEAR(row.busbw_gbs, row.algbw_gbs * factor, 1e-9);
    EXPECT_NEAR(row.algbw_gbs * row.time_us * 1e3, static_cast<double>(row.bytes), 1e-3);
    measured.insert(row.operation + " " + row.mode);
  }
  std::set<std::string> expected;
  for (const CollectiveKind kind : operations()) {
    for (const char* mode : {" eager", " graph"}) {
      expected.insert(std::string(operation_name(kind)) + mode);
    }
  }
  EXPECT_EQ(measured, expected);
}

TEST(BenchTest, MeasuresEveryOperationInOneProcess) {
  for (const int ranks : {2, 3, 4}) {
    const TemporaryFile json(".json");
    const Outcome outcome =
        run(Words{kBench, "-o", "all", "-g", std::to_string(ranks), "-J", json.path()} + kShort);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(outcome.out, "");
    expect_all_measured(read_report(json.path()), ranks);
  }
}

TEST(BenchTest, MeasuresEveryOperationUnderALauncher) {
  const std::vector<Words> launchers{{GANTRY_TEST_GLAUNCH}, {MPIRUN_PROGRAM, "--oversubscribe"}};
  for (const Words& launcher : launchers) {
    // A build without MPI has no ranks there.
    if (launcher.front().empty()) continue;
    const TemporaryFile json(".json");
    const Outcome outcome =
        run(launcher + Words{"-n", "2", kBench, "-o", "all", "-J", json.path()} + kShort);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    const Report report = read_report(json.path());
    EXPECT_NE(report.launched_by, "threads");
    expect_all_measured(report, 2);
  }
}

TEST(BenchTest, EveryAlgorithmHasALineOfItsOwn) {
  const TemporaryFile json(".json");
  const TemporaryFile svg(".svg");
  const std::string algorithms = "auto,p2p,ll,ll128,ll128_two_shot,one_shot,two_shot,host";
  const Outcome outcome = run(Words{kBench, "-o", "all", "-a", algorithms, "-d", "bf16", "-J",
                                    json.path(), "--svg", svg.path()} +
                              kShort);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::map<std::string, std::set<std::string>> taken;
  for (const Row& row : read_report(json.path()).rows) {
    SCOPED_TRACE(row_text(row));
    taken[row.variant].insert(row.algorithm);
    if (row.variant == "host" && row.mode == "graph") {
      EXPECT_THAT(row.note, HasSubstr("cannot be captured"));
      continue;
    }
    EXPECT_EQ(row.wrong, 0);
    EXPECT_GT(row.time_us, 0);
  }
  const std::map<std::string, std::set<std::string>> expected{
      {"auto", {"ll", "ll128", "ll128_two_shot", "one_shot", "two_shot"}},
      {"p2p", {"ll", "ll128", "ll128_two_shot", "one_shot", "two_shot"}},
      {"ll128", {"ll128"}},
      {"ll128_two_shot", {"ll128_two_shot"}},
      {"ll", {"ll"}},
      {"one_shot", {"one_shot"}},
      {"two_shot", {"two_shot"}},
      {"host", {"host"}}};
  EXPECT_EQ(taken, expected);
  const std::string picture = text_of(svg.path());
  EXPECT_THAT(picture, AllOf(HasSubstr("<svg xmlns"), HasSubstr("</svg>")));
  for (const std::string operation : {"all_reduce", "all_to_all", "send_recv"}) {
    EXPECT_THAT(picture, HasSubstr(operation + ": median time"));
    EXPECT_THAT(picture, HasSubstr(operation + ": bus bandwidth"));
  }
}

TEST(BenchTest, RegisteredTensorsHaveAlgorithmsOfTheirOwn) {
  for (const Words& launcher : {Words{}, Words{GANTRY_TEST_GLAUNCH, "-n", "3"}}) {
    const TemporaryFile json(".json");
    const Outcome outcome =
        run(launcher +
            Words{kBench, "-o", "all", "-a", "zero_copy,copy", "--register", "-J", json.path()} +
            kShort);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    std::map<std::string, std::set<std::string>> measured;
    for (const Row& row : read_report(json.path()).rows) {
      EXPECT_EQ(row.variant, row.algorithm + " registered") << row_text(row);
      EXPECT_EQ(row.wrong, 0) << row_text(row);
      measured[row.algorithm].insert(row.operation);
    }
    const std::map<std::string, std::set<std::string>> expected{
        {"zero_copy", {"all_reduce", "reduce", "broadcast", "reduce_scatter"}},
        {"copy", {"all_reduce", "all_gather", "all_to_all", "broadcast"}}};
    EXPECT_EQ(measured, expected);
  }
}

TEST(BenchTest, EveryElementTypeIsReducedRight) {
  for (const char* dtype : {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64",
                            "u16", "u32", "u64", "f8e4m3", "f8e5m2"}) {
    for (const char* redop : {"sum", "prod", "max"}) {
      const Outcome outcome =
          run({kBench, "-o", "all_reduce,reduce_scatter", "-d", dtype, "-r", redop, "-b", "300",
               "-e", "20000", "-f", "64", "-n", "1", "--batches", "1", "-w", "0"});
      EXPECT_EQ(outcome.exit_code, 0) << dtype << " " << redop << "\n" << outcome.describe();
      EXPECT_THAT(outcome.out, HasSubstr("# wrong elements: 0;"));
    }
  }
}

TEST(BenchTest, EveryElementTypeIsMovedRight) {
  for (const char* dtype : {"bool", "u8", "u16", "u32", "u64", "f8e4m3", "f8e5m2"}) {
    for (const Words& form : {Words{}, Words{"--comm"}}) {
      const Outcome outcome = run(Words{kBench, "-o", "all", "-d", dtype, "-b", "300", "-e", "300",
                                        "-n", "1", "--batches", "1", "-w", "0", "--tensors", "3"} +
                                  form);
      EXPECT_EQ(outcome.exit_code, 0) << dtype << "\n" << outcome.describe();
      EXPECT_THAT(outcome.out, HasSubstr("# wrong elements: 0;"));
    }
  }
}

TEST(BenchTest, MeasuresTheFormsOfOneProcess) {
  const TemporaryFile json(".json");
  const Outcome outcome =
      run({kBench, "--comm", "-o", "all", "-b", "4K", "-e", "64K", "-f", "16", "-n", "1",
           "--batches", "2", "--tensors", "7", "-q", "-J", json.path()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::set<std::string> measured;
  for (const Row& row : read_report(json.path()).rows) {
    SCOPED_TRACE(row_text(row));
    EXPECT_EQ(row.wrong, 0);
    EXPECT_GT(row.time_us, 0);
    measured.insert(row.operation);
  }
  std::set<std::string> expected;
  for (const std::string& form : comm_forms()) expected.insert("comm." + form);
  EXPECT_EQ(measured, expected);
}

TEST(BenchTest, DrawsOtherResultsBesideItsOwn) {
  Report peer{.library = "Peer 1.2", .device = "x", .ranks = 4, .launched_by = "mpi", .rows = {}};
  Row row;
  row.operation = "broadcast";
  row.variant = "symmetric";
  row.mode = "eager";
  row.bytes = 4096;
  row.set_timing({.calls = 1, .batches = 1, .mean_us = 5, .min_us = 5, .p50_us = 5, .p99_us = 5},
                 1);
  peer.rows = {row};
  const TemporaryFile other(".json");
  const TemporaryFile own(".json");
  const TemporaryFile svg(".svg");
  std::ofstream(other.path()) << report_json(peer);
  const Outcome outcome = run(Words{kBench, "-o", "broadcast", "--compare", other.path(), "-J",
                                    own.path(), "--svg", svg.path()} +
                              kShort);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(text_of(svg.path()), HasSubstr("Peer 1.2 symmetric, eager"));
  const TemporaryFile again(".svg");
  const Outcome drawn =
      run({kBench, "--draw", own.path(), "--compare", other.path(), "--svg", again.path()});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.describe();
  EXPECT_EQ(text_of(again.path()), text_of(svg.path()));
}

TEST(BenchTest, PrintsTheTableBesideJson) {
  const Outcome outcome = run({kBench, "-o", "gather", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0",
                               "--root", "2", "--batches", "1", "-J", "-"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("schema"), "gantry-collectives-1");
  EXPECT_EQ(json.at("rows").at(0).at("root"), 2);
  EXPECT_EQ(json.at("rows").at(0).at("count"), 64);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("gather"), HasSubstr("# wrong elements: 0;")));
}

TEST(BenchTest, SaysThatStandardOutputTakesNothing) {
  for (const Words& words : {Words{kBench, "-o", "barrier", "-n", "1", "--batches", "1"},
                             Words{kBench, "-o", "barrier", "-J", "-"} + kShort,
                             Words{kBench, "--help"}, Words{kTune, "--help"}}) {
    for (const char* where : {">/dev/full", ">&-"}) {
      const Outcome outcome =
          run(Words{"/bin/sh", "-c", std::string("exec \"$0\" \"$@\" ") + where} + words);
      EXPECT_EQ(outcome.exit_code, 2) << where << "\n" << outcome.describe();
      EXPECT_THAT(outcome.err, HasSubstr(": failed to write to standard output")) << where;
    }
  }
}

TEST(BenchTest, AnErrorThatCannotBePrintedIsAnErrorAllTheSame) {
  for (const char* where : {"2>/dev/full", ">&- 2>&- <&-"}) {
    const Outcome outcome =
        run({"/bin/sh", "-c", std::string("exec \"$0\" --bogus ") + where, kBench});
    EXPECT_EQ(outcome.exit_code, 2) << where << "\n" << outcome.describe();
  }
}

TEST(BenchTest, SizesEndBeforeTheyOverflow) {
  constexpr std::int64_t kMost = INT64_MAX;
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(sizes_between(8, 100, 2, 0), (Sizes{8, 16, 32, 64}));
  EXPECT_EQ(sizes_between(8, 30, 2, 11), (Sizes{8, 19, 30}));
  EXPECT_EQ(sizes_between(0, 2, 1.1, 0), (Sizes{0, 1, 2}));
  EXPECT_EQ(sizes_between(8, kMost, 2, kMost - 8), (Sizes{8, kMost}));
  EXPECT_EQ(sizes_between(8, kMost, 2, kMost), (Sizes{8}));
  EXPECT_EQ(sizes_between(kMost, kMost, 2, 0), (Sizes{kMost}));
  EXPECT_EQ(sizes_between(8, kMost, 1e18, 0), (Sizes{8, 8'000'000'000'000'000'000}));
  EXPECT_EQ(sizes_between(1, kMost, 2, 0).size(), 63U);
}

TEST(BenchTest, ResultsTakeThePlaceOfOlderOnes) {
  const TemporaryFile json(".json");
  std::ofstream(json.path()) << "older";
  const Words words = Words{kBench, "-o", "barrier", "-J", json.path()} + kShort;
  EXPECT_EQ(run(words + Words{"--root", "9"}).exit_code, 2);
  EXPECT_EQ(text_of(json.path()), "older") << "written before anything was measured";
  ASSERT_EQ(run(words).exit_code, 0);
  EXPECT_EQ(read_report(json.path()).rows.size(), 2U);
}

TEST(BenchTest, ADiskThatIsFullLeavesWhatWasThere) {
  const TemporaryFile json(".json");
  ASSERT_EQ(run(Words{kBench, "-o", "all_gather", "-J", json.path()} + kShort).exit_code, 0);
  const TemporaryFile svg(".svg");
  std::ofstream(svg.path()) << "older";
  const Outcome outcome = run({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"",
                               kBench, "--draw", json.path(), "--svg", svg.path()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err, "gantry-bench: failed to write '" + svg.path() + "': File too large\n");
  EXPECT_EQ(text_of(svg.path()), "older");
  const std::filesystem::path old = svg.path();
  for (const auto& file : std::filesystem::directory_iterator(old.parent_path())) {
    EXPECT_FALSE(file.path() != old && file.path().string().starts_with(svg.path())) << file;
  }
}

struct Refusal {
  const char* name;
  const char* program;
  Words words;
  const char* text;
};

class BenchRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(BenchRefusalTest, SaysWhatIsWrong) {
  const Outcome outcome = run(Words{GetParam().program} + GetParam().words);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().text));
  EXPECT_EQ(outcome.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Options, BenchRefusalTest,
    ::testing::Values(
        Refusal{"Operation", kBench, {"-o", "sort"}, "--op: expected all or some of all_reduce, "},
        Refusal{"Form", kBench, {"--comm", "-o", "barrier"}, "but got 'barrier'"},
        Refusal{"ReduceOp", kBench, {"-r", "mean"}, "--redop: expected one of sum, prod, "},
        Refusal{"DType", kBench, {"-d", "f8"}, "Expected one of bool u8 i8 "},
        Refusal{"Algorithm", kBench, {"-a", "fast"}, "gantry-bench: --algo: expected auto, p2p, "},
        Refusal{"Range", kBench, {"-b", "2K", "-e", "1K"}, "--begin, --end: expected a range"},
        Refusal{"Factor", kBench, {"-f", "1"}, "--factor: expected a number greater than 1"},
        Refusal{"Step", kBench, {"-i", "0"}, "--step: expected a number of bytes greater than 0"},
        Refusal{"EndlessFactor", kBench, {"-f", "inf"}, "--factor: expected a number greater than"},
        Refusal{"Json", kBench, {"-J", "/no/such/file"}, "failed to write '/no/such/file'"},
        Refusal{"Svg", kBench, {"--svg", "/no/such/file"}, "failed to write '/no/such/file'"},
        Refusal{
            "CommJson", kBench, {"--comm", "-o", "gather", "-J", "/no/such"}, "failed to write"},
        Refusal{"TuneOutput", kTune, {"-O", "/no/such/file"}, "failed to write '/no/such/file'"},
        Refusal{"TuneSamples", kTune, {"-J", "/no/such/file"}, "failed to write '/no/such/file'"},
        Refusal{
            "End", kBench, {"-e", "9223372036854775808"}, "--end: expected less than 2^63 bytes"},
        Refusal{"MaxSeconds", kBench, {"--max-seconds", "nan"}, "expected a number greater than 0"},
        Refusal{"NoSeconds", kTune, {"--max-seconds", "0"}, "but got '0'\n"},
        Refusal{"RootBelow",
                kBench,
                {"--root", "-1"},
                "--root: expected a whole number from 0 to 2147483647, but got '-1'"},
        Refusal{"StepAndFactor", kBench, {"-i", "8", "-f", "2"}, "excludes"},
        Refusal{"Devices", kBench, {"-g", "5"}, "--gpus: expected at most the 4 visible devices"},
        Refusal{"Root", kBench, {"--root", "4"}, "--root: expected a rank below 4, but got 4"},
        Refusal{"Blocks", kBench, {"--blocks", "8"}, "--blocks: expected an algorithm beside it"},
        Refusal{"Graph", kBench, {"--graph-only"}, "--graph-only: expected --graph beside it"},
        Refusal{"Transport", kBench, {"-a", "ll", "--transport", "p2p"}, "--transport: expected"},
        Refusal{"CommGraph", kBench, {"--comm", "-o", "gather", "-G", "2"}, "--comm: expected"},
        Refusal{"CommRegister", kBench, {"--comm", "-o", "gather", "-R"}, "--comm: expected"},
        Refusal{"CopyBlocks", kBench, {"-a", "copy", "--blocks", "4"}, "--blocks: expected"},
        Refusal{"Draw", kBench, {"--draw", "results.json"}, "--draw: expected --svg beside it"},
        Refusal{"Compare", kBench, {"--compare", "/no/such"}, "cannot read '/no/such'"},
        Refusal{"TuneOperation", kTune, {"-o", "barrier"}, "with a choice of algorithms"},
        Refusal{"TuneAlgorithm", kTune, {"-a", "auto"}, "--algo: expected algorithms"},
        Refusal{"TuneFast", kTune, {"-a", "fast"}, "gantry-tune: --algo: expected auto, p2p, "},
        Refusal{"TuneMerge", kTune, {"--merge"}, "--output"},
        Refusal{"TuneAlone", kTune, {"-g", "1"}, "expected at least two ranks, but got one"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BenchTest, RefusesResultsOfAnotherProgram) {
  const TemporaryFile other(".json");
  std::ofstream(other.path()) << R"({"schema": "other"})";
  const Outcome outcome = run({kBench, "--compare", other.path()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("expected the schema gantry-collectives-1, but got \"other\""));
}

TEST(TuneTest, WritesATableThatIsTaken) {
  if (is_scheduled()) GTEST_SKIP() << "takes minutes under a schedule";
  for (const Words& launcher : {Words{}, Words{GANTRY_TEST_GLAUNCH, "-n", "3"},
                                Words{MPIRUN_PROGRAM, "--oversubscribe", "-n", "3"}}) {
    if (!launcher.empty() && launcher.front().empty()) continue;
    const Words ranks = launcher.empty() ? Words{"-g", "3"} : Words{};
    const TemporaryFile table(".json");
    const TemporaryFile samples(".json");
    const Outcome outcome = run(launcher +
                                Words{kTune, "--quick", "-e", "16K", "-n", "2", "--batches", "2",
                                      "-q", "-O", table.path(), "-J", samples.path()} +
                                ranks);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    const Json json = Json::parse(text_of(table.path()));
    EXPECT_EQ(json.at("device"), "Simulated GPU");
    EXPECT_EQ(json.at("ranks"), 3);
    EXPECT_EQ(json.at("tables").size(), 8U) << "every operation with a choice";
    const Selector selector = Selector::parse(text_of(table.path()), 3, "Simulated GPU");
    std::set<std::string> tried;
    for (const Row& row : read_report(samples.path()).rows) {
      EXPECT_EQ(row.wrong, 0) << row_text(row);
      tried.insert(row.algorithm);
    }
    EXPECT_EQ(tried, (std::set<std::string>{"ll", "ll128", "ll128_two_shot", "one_shot", "two_shot",
                                            "zero_copy", "copy"}));
    // The library accepts it, and says so by taking what it holds.
    const TemporaryFile results(".json");
    const Outcome used = run(Words{kBench, "-g", "3", "-J", results.path()} + kShort,
                             {{"GANTRY_COLL_TABLE", table.path()}});
    ASSERT_EQ(used.exit_code, 0) << used.describe();
    for (const Row& row : read_report(results.path()).rows) {
      const Case what = make_case(CollectiveKind::all_reduce, f32, ReduceOp::sum, 0, row.bytes, 3);
      const Choice choice = selector.choose(describe(what), row.bytes);
      EXPECT_EQ(row.algorithm, name(choice.algorithm)) << row_text(row);
    }
  }
}

// What was measured for small arrays only must not be asked to carry large ones.
TEST(TuneTest, EndsEveryTableWithWhatCarriesAllSizes) {
  for (const auto& [small, large] :
       std::map<std::string, Algorithm>{{"ll", Algorithm::one_shot},
                                        {"ll128", Algorithm::one_shot},
                                        {"ll128_two_shot", Algorithm::two_shot}}) {
    const TemporaryFile table(".json");
    const Outcome outcome = run({kTune, "--quick", "-o", "all_reduce", "-a", small, "-e", "1K",
                                 "-q", "-g", "3", "-O", table.path()});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    const Selector selector = Selector::parse(text_of(table.path()), 3, "Simulated GPU");
    const std::vector<SelectorRow>& rows = selector.rows(CollectiveKind::all_reduce);
    EXPECT_EQ(name(rows.front().choice.algorithm), small);
    EXPECT_EQ(rows.back().choice.algorithm, large);
    EXPECT_EQ(rows.back().up_to_bytes, INT64_MAX);
  }
}

TEST(TuneTest, RegisteredMemoryHasRowsOfItsOwn) {
  using tune::Sample;
  const Choice zero_copy{Algorithm::zero_copy, 16};
  const Choice copy{Algorithm::copy, 16};
  const std::vector<Sample> others{
      {8, {Algorithm::ll, 8}, 3},          {8, {Algorithm::one_shot, 8}, 9},
      {64, {Algorithm::one_shot, 8}, 10},  {512, {Algorithm::one_shot, 8}, 20},
      {512, {Algorithm::two_shot, 8}, 30}, {4096, {Algorithm::two_shot, 8}, 90}};
  const std::vector<SelectorRow> rows = tune::choose_registered_rows({{8, zero_copy, 9},
                                                                      {64, zero_copy, 5},
                                                                      {512, zero_copy, 18},
                                                                      {4096, zero_copy, 60},
                                                                      {8, copy, 30},
                                                                      {64, copy, 30},
                                                                      {512, copy, 11},
                                                                      {4096, copy, 40}},
                                                                     others);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].choice.algorithm, Algorithm::automatic);
  EXPECT_EQ(rows[0].up_to_bytes, 8);
  EXPECT_EQ(rows[1].choice, zero_copy);
  EXPECT_EQ(rows[1].up_to_bytes, 64);
  EXPECT_EQ(rows[2].choice, copy);
  EXPECT_EQ(rows[2].up_to_bytes, INT64_MAX);
  EXPECT_TRUE(tune::choose_registered_rows({{8, copy, 30}, {64, copy, 30}}, others).empty());
}

TEST(TuneTest, LooksAtWhatItMergesFirst) {
  const TemporaryFile table(".json");
  std::ofstream(table.path()) << "{";
  const Outcome outcome =
      run({kTune, "--quick", "-o", "all_reduce", "-e", "1K", "--merge", "-O", table.path()});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_TRUE(outcome.err.starts_with("gantry-tune: --merge: " + table.path() +
                                      ": collective table: expected JSON, but got "))
      << "nothing was measured: " << outcome.err;
  EXPECT_EQ(text_of(table.path()), "{");
}

TEST(TuneTest, KeepsTablesOfOtherMachines) {
  if (is_scheduled()) GTEST_SKIP() << "takes minutes under a schedule";
  const TemporaryFile table(".json");
  for (const char* ranks : {"2", "4"}) {
    const Outcome outcome = run({kTune, "--quick", "-o", "all_reduce", "-e", "1K", "-q", "-g",
                                 ranks, "--merge", "-O", table.path()});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  }
  std::set<int> kept;
  const Json all = Json::parse(text_of(table.path()));
  for (const Json& one : all.elements()) kept.insert(one.at("ranks").as<int>());
  EXPECT_EQ(kept, (std::set<int>{2, 4}));
}

}  // namespace
}  // namespace gantry::bench
