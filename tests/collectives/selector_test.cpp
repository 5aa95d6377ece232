#include "collectives/selection/selector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include <gantry/core/error.hpp>

#include "core/env/settings.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::expect_throws;
using ::testing::HasSubstr;

constexpr std::string_view kTable = R"({"device": "Test GPU", "ranks": 4, "tables": {
  "all_reduce": [
    {"up_to_bytes": 1024, "algorithm": "ll", "blocks": 8},
    {"up_to_bytes": 8192, "algorithm": "one_shot", "blocks": 16},
    {"up_to_bytes": 1048576, "algorithm": "two_shot", "blocks": 64},
    {"algorithm": "nccl", "blocks": 1}],
  "all_gather": [
    {"up_to_bytes": 524288, "algorithm": "ll", "blocks": 4},
    {"algorithm": "one_shot", "blocks": 2}]
}})";

Descriptor call(CollectiveKind kind, std::int64_t count, DType dtype = DType::f32) {
  return {.count = count, .kind = kind, .dtype = dtype};
}

// What is chosen for an all_reduce of so many bytes.
Choice all_reduce(const Selector& selector, std::int64_t bytes) {
  return selector.choose(call(CollectiveKind::all_reduce, bytes, DType::u8), bytes);
}

// Sets an environment variable for one scope.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

TEST(SelectorTest, ThresholdsAreInclusive) {
  const Selector selector = Selector::parse(kTable, 4, "Test GPU");
  EXPECT_EQ(all_reduce(selector, 0), (Choice{Algorithm::ll, 8}));
  EXPECT_EQ(all_reduce(selector, 1024), (Choice{Algorithm::ll, 8}));
  EXPECT_EQ(all_reduce(selector, 1025), (Choice{Algorithm::one_shot, 16}));
  EXPECT_EQ(all_reduce(selector, 8192), (Choice{Algorithm::one_shot, 16}));
  EXPECT_EQ(all_reduce(selector, 8193), (Choice{Algorithm::two_shot, 64}));
  EXPECT_EQ(all_reduce(selector, 1 << 20), (Choice{Algorithm::two_shot, 64}));
  EXPECT_EQ(all_reduce(selector, (1 << 20) + 1), (Choice{Algorithm::nccl, 1}));
}

TEST(SelectorTest, RowsThatCannotServeGiveWayToTheNearest) {
  const Selector selector = Selector::parse(kTable, 4, "Test GPU");
  Descriptor sum = call(CollectiveKind::all_reduce, 1 << 20);
  EXPECT_EQ(selector.choose(sum, 4 << 20), (Choice{Algorithm::two_shot, 64}))
      << "order is promised";
  sum.reproducible = 0;
  EXPECT_EQ(selector.choose(sum, 4 << 20), (Choice{Algorithm::nccl, 1}));
  sum.op = ReduceOp::bxor;
  EXPECT_EQ(selector.choose(sum, 4 << 20), (Choice{Algorithm::two_shot, 64})) << "unknown to NCCL";
  // 512 KiB of 4 ranks are 128 KiB each: too much for ll.
  EXPECT_EQ(selector.choose(call(CollectiveKind::all_gather, 32 << 10), 512 << 10),
            (Choice{Algorithm::one_shot, 2}));
  EXPECT_EQ(selector.choose(call(CollectiveKind::all_gather, 16 << 10), 256 << 10),
            (Choice{Algorithm::ll, 4}));
  const Selector pair = Selector::parse(kTable, 2, "Test GPU");
  EXPECT_EQ(all_reduce(pair, 9000).algorithm, Algorithm::nccl) << "two_shot needs a third rank";
}

TEST(SelectorTest, RegisteredMemoryHasRowsOfItsOwn) {
  Selector selector = Selector::parse(kTable, 4, "Test GPU");
  const std::vector<SelectorRow> rows{{8191, {Algorithm::automatic, 1}},
                                      {65536, {Algorithm::zero_copy, 32}},
                                      {INT64_MAX, {Algorithm::copy, 1}}};
  selector.set(CollectiveKind::all_reduce, rows, true);
  Descriptor sum = call(CollectiveKind::all_reduce, 1000);
  EXPECT_EQ(selector.choose(sum, 8192), (Choice{Algorithm::one_shot, 16})) << "not registered";
  sum.window_offset = 1;
  EXPECT_EQ(selector.choose(sum, 8191), (Choice{Algorithm::one_shot, 16})) << "as any memory";
  EXPECT_EQ(selector.choose(sum, 8192), (Choice{Algorithm::zero_copy, 32}));
  EXPECT_EQ(selector.choose(sum, 65537).algorithm, Algorithm::copy);
  selector.rule("p2p");
  EXPECT_EQ(selector.choose(sum, 8192).algorithm, Algorithm::zero_copy);
  selector.rule("two_shot");
  EXPECT_EQ(selector.choose(sum, 8192), (Choice{Algorithm::two_shot, 64})) << "forced";
  selector.rule("zero_copy");
  EXPECT_EQ(selector.choose(sum, 8), (Choice{Algorithm::zero_copy, 32})) << "forced";
  selector.rule("copy");
  EXPECT_EQ(selector.choose(sum, 8).algorithm, Algorithm::copy) << "forced";
  sum.window_offset = 0;
  EXPECT_EQ(selector.choose(sum, 8), (Choice{Algorithm::ll, 8}));

  selector.rule("auto");
  Descriptor moved = call(CollectiveKind::all_gather, 1000);
  moved.window_offset = 1;
  EXPECT_FALSE(needs_registration(selector.choose(moved, 1 << 20).algorithm)) << "no rows";
  Selector again = Selector::parse(selector.to_json(), 4, "Test GPU");
  EXPECT_EQ(again.to_json(), selector.to_json());
  EXPECT_EQ(again.rows(CollectiveKind::all_reduce, true).size(), 3U);
  EXPECT_EQ(again.hash(), selector.hash());
  again.set(CollectiveKind::all_reduce, {}, true);
  EXPECT_NE(again.hash(), selector.hash());
  for (const Choice wrong : {Choice{Algorithm::two_shot, 1}, Choice{Algorithm::ll, 1}}) {
    expect_throws<InvalidArgument>(
        [&] {
          selector.set(CollectiveKind::all_reduce, {{INT64_MAX, wrong}}, true);
        },
        "expected an algorithm that can do it");
  }
  for (const Choice wrong : {Choice{Algorithm::zero_copy, 1}, Choice{Algorithm::automatic, 1}}) {
    expect_throws<InvalidArgument>(
        [&] {
          selector.set(CollectiveKind::all_reduce, {{INT64_MAX, wrong}});
        },
        "expected an algorithm that can do it");
  }
  expect_throws<InvalidArgument>(
      [&] {
        selector.set(CollectiveKind::all_gather, {{INT64_MAX, {Algorithm::zero_copy, 1}}}, true);
      },
      "all_gather: expected an algorithm that can do it, but got zero_copy");
}

TEST(SelectorTest, KindsWithoutRowsAreDirect) {
  const Selector selector = Selector::parse(kTable, 4, "Test GPU");
  for (const CollectiveKind kind : {CollectiveKind::barrier, CollectiveKind::send,
                                    CollectiveKind::recv, CollectiveKind::scatter}) {
    EXPECT_EQ(selector.choose(call(kind, 4), 16).algorithm, Algorithm::one_shot) << name(kind);
  }
}

TEST(SelectorTest, ForcedAlgorithmIsTakenWhereItCanServe) {
  Selector selector = Selector::parse(kTable, 4, "Test GPU");
  selector.force(Algorithm::two_shot);
  EXPECT_EQ(all_reduce(selector, 8), (Choice{Algorithm::two_shot, 64}))
      << "the blocks of its own row";
  EXPECT_EQ(selector.choose(call(CollectiveKind::all_gather, 4), 64), (Choice{Algorithm::ll, 4}));
  selector.force(Algorithm::one_shot);
  EXPECT_EQ(all_reduce(selector, 8), (Choice{Algorithm::one_shot, 16}));
  EXPECT_EQ(selector.choose(call(CollectiveKind::all_gather, 4), 64),
            (Choice{Algorithm::one_shot, 2}));
  selector.force(Algorithm::ll);
  EXPECT_EQ(all_reduce(selector, kLlLimitBytes), (Choice{Algorithm::ll, 8}));
  EXPECT_EQ(all_reduce(selector, kLlLimitBytes + 1), (Choice{Algorithm::two_shot, 64}));
  selector.force(Algorithm::ll128_two_shot);
  EXPECT_EQ(all_reduce(selector, kLl128TwoShotLimitBytes).algorithm, Algorithm::ll128_two_shot);
  EXPECT_NE(all_reduce(selector, kLl128TwoShotLimitBytes + 4).algorithm, Algorithm::ll128_two_shot);
  EXPECT_EQ(selector.choose(call(CollectiveKind::all_gather, 4), 64), (Choice{Algorithm::ll, 4}));
  Selector pair = Selector::parse(kTable, 2, "Test GPU");
  pair.force(Algorithm::ll128_two_shot);
  EXPECT_NE(all_reduce(pair, 8).algorithm, Algorithm::ll128_two_shot)
      << "two_shot needs a third rank";
  selector.force(Algorithm::host);
  EXPECT_EQ(all_reduce(selector, 8).algorithm, Algorithm::host);
  EXPECT_EQ(selector.choose(call(CollectiveKind::barrier, 0), 0).algorithm, Algorithm::host);
  selector.force(Algorithm::automatic);
  EXPECT_EQ(all_reduce(selector, 8), (Choice{Algorithm::ll, 8}));
}

TEST(SelectorTest, NcclCarriesOnlyWhatHasOneResultOrNeedsNone) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
    Descriptor what{
        .count = 8, .kind = CollectiveKind::all_reduce, .op = op, .dtype = f32, .reproducible = 1};
    EXPECT_FALSE(can_serve(Algorithm::nccl, what, 32)) << name(op);
    what.reproducible = 0;
    EXPECT_TRUE(can_serve(Algorithm::nccl, what, 32)) << name(op);
    what = {.count = 8, .kind = CollectiveKind::all_reduce, .op = op, .dtype = i32};
    EXPECT_TRUE(can_serve(Algorithm::nccl, what, 32)) << name(op);
  }
}

TEST(SelectorTest, LinesAreForLinksThatDoNotDivideThem) {
  for (const Algorithm algorithm : {Algorithm::ll128, Algorithm::ll128_two_shot}) {
    Selector selector = Selector::parse(kTable, 4, "Test GPU");
    selector.force(algorithm);
    EXPECT_EQ(all_reduce(selector, 4096).algorithm, algorithm);
    selector.forbid_ll128();
    EXPECT_FALSE(uses_ll128(all_reduce(selector, 4096).algorithm)) << name(algorithm);
  }
}

TEST(SelectorTest, MoreRanksLeaveLessRoomForTheLinesOfEach) {
  for (const int ranks : {2, 4, 8, 32}) {
    Selector selector = Selector::parse(kTable, ranks, "Test GPU");
    selector.force(Algorithm::ll128);
    const std::int64_t most = (std::int64_t{2} << 20) / ranks;
    EXPECT_EQ(all_reduce(selector, most).algorithm, Algorithm::ll128) << ranks;
    EXPECT_NE(all_reduce(selector, most + 4).algorithm, Algorithm::ll128) << ranks;
  }
}

TEST(SelectorTest, RuleReadsWhatTheVariableAllows) {
  Selector selector = Selector::parse(kTable, 4, "Test GPU");
  std::vector<std::string_view> words{"auto", "p2p"};
  for (const Algorithm algorithm : kAllAlgorithms) {
    words.push_back(name(algorithm));
    selector.rule(name(algorithm));
    EXPECT_EQ(selector.forced(), algorithm);
    EXPECT_FALSE(selector.is_p2p_only());
  }
  EXPECT_EQ(env::kCollAlgo.choices(), words);
  selector.rule("p2p");
  EXPECT_EQ(selector.forced(), Algorithm::automatic);
  EXPECT_TRUE(selector.is_p2p_only());
  EXPECT_EQ(all_reduce(selector, 4 << 20), (Choice{Algorithm::two_shot, 64}));
  selector.rule("auto");
  EXPECT_FALSE(selector.is_p2p_only());
  EXPECT_EQ(all_reduce(selector, 4 << 20), (Choice{Algorithm::nccl, 1}));
  expect_throws<InvalidArgument>([&] { selector.rule("fast"); },
                                 "GANTRY_COLL_ALGO: expected auto, p2p, ll, ll128, "
                                 "ll128_two_shot, one_shot, two_shot, "
                                 "zero_copy, copy, nccl or host, but got 'fast'");
}

TEST(SelectorTest, NcclIsLookedForOnlyIfItMayBeChosen) {
  Selector selector = Selector::parse(kTable, 4, "Test GPU");
  EXPECT_TRUE(selector.may_choose_nccl()) << "a row has it";
  selector.rule("p2p");
  EXPECT_FALSE(selector.may_choose_nccl());
  selector.rule("two_shot");
  EXPECT_TRUE(selector.may_choose_nccl()) << "of calls that two_shot does not serve";
  selector.rule("auto");
  const std::vector<SelectorRow> rows = selector.rows(CollectiveKind::all_gather);
  selector.set(CollectiveKind::all_reduce, rows);
  EXPECT_FALSE(selector.may_choose_nccl());
  selector.rule("nccl");
  EXPECT_TRUE(selector.may_choose_nccl());
  selector.forbid_nccl("there is none");
  EXPECT_FALSE(selector.may_choose_nccl());
}

TEST(SelectorTest, WithoutNcclTheNearestRowIsTakenAndTheReasonReported) {
  Selector selector = Selector::parse(kTable, 4, "Test GPU");
  selector.rule("nccl");
  selector.warn_ignored();
  EXPECT_EQ(all_reduce(selector, 1024).algorithm, Algorithm::nccl);
  selector.forbid_nccl("rank 2: failed to load libnccl.so.2: No such file or directory");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(all_reduce(selector, 4 << 20), (Choice{Algorithm::two_shot, 64}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("GANTRY_COLL_ALGO=nccl: all_reduce goes by two_shot: rank 2: failed to "
                        "load libnccl.so.2: No such file or directory"));
}

TEST(SelectorTest, EqualBlocksAreWhatSelectionDependsOn) {
  // Ranks send different sizes: none of them may decide.
  for (const Algorithm algorithm : {Algorithm::ll, Algorithm::two_shot}) {
    EXPECT_FALSE(can_serve(algorithm, call(CollectiveKind::all_to_all, -1), 64)) << name(algorithm);
  }
  EXPECT_TRUE(can_serve(Algorithm::one_shot, call(CollectiveKind::all_to_all, -1), 64));
  EXPECT_TRUE(can_serve(Algorithm::host, call(CollectiveKind::all_to_all, -1), 64));
}

TEST(SelectorTest, TakesTheTableOfTheNearestMachine) {
  const auto table = [](std::string_view device, int ranks, int blocks) {
    return "{\"device\": \"" + std::string(device) + "\", \"ranks\": " + std::to_string(ranks) +
           ", \"tables\": {\"all_reduce\": [{\"algorithm\": \"one_shot\", \"blocks\": " +
           std::to_string(blocks) + "}]}}";
  };
  const std::string list = "[" + table("A", 4, 4) + "," + table("A", 8, 8) + "," +
                           table("B", 2, 20) + "," + table("A", 3, 3) + "]";
  const auto blocks = [](const std::string& json, int ranks, std::string_view device) {
    return all_reduce(Selector::parse(json, ranks, device), 8).blocks;
  };
  EXPECT_EQ(blocks(list, 4, "A"), 4);
  EXPECT_EQ(blocks(list, 7, "A"), 4) << "the nearest lower";
  EXPECT_EQ(blocks(list, 64, "A"), 8);
  EXPECT_EQ(blocks(list, 2, "A"), 3) << "none is lower";
  EXPECT_EQ(blocks(list, 8, "B"), 20) << "the device counts more than the ranks";
  EXPECT_EQ(blocks(list, 8, "C"), 8) << "an unknown device is taken for the first";
  EXPECT_EQ(blocks("[" + table("A", 4, 4) + "," + table("*", 4, 7) + "]", 4, "C"), 7);
}

TEST(SelectorTest, JsonMakesTheRoundTrip) {
  const Selector selector = Selector::parse(kTable, 4, "Test GPU");
  const std::string text = selector.to_json();
  const Selector again = Selector::parse(text, 4, "Test GPU");
  EXPECT_EQ(again.to_json(), text);
  EXPECT_EQ(again.hash(), selector.hash());
  EXPECT_THAT(text, HasSubstr("\"device\": \"Test GPU\", \"ranks\": 4"));
}

TEST(SelectorTest, HashChangesWithEveryRow) {
  const Selector base = Selector::parse(kTable, 4, "Test GPU");
  std::set<std::uint32_t> hashes{base.hash()};
  std::size_t variants = 1;
  const auto add = [&](const Selector& variant) {
    hashes.insert(variant.hash());
    EXPECT_EQ(hashes.size(), ++variants);
  };
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather}) {
    for (std::size_t i = 0; i < base.rows(kind).size(); ++i) {
      auto rows = base.rows(kind);
      Selector variant = base;
      rows[i].choice.blocks += i == 2 ? -1 : 1;
      variant.set(kind, rows);
      add(variant);
      rows = base.rows(kind);
      rows[i].choice.algorithm = Algorithm::host;
      variant.set(kind, rows);
      add(variant);
      rows = base.rows(kind);
      if (i + 1 == rows.size()) continue;
      rows[i].up_to_bytes += 1;
      variant.set(kind, rows);
      add(variant);
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
      variant.set(kind, rows);
      add(variant);
    }
  }
  for (const char* rule : {"p2p", "ll", "one_shot", "two_shot", "nccl", "host"}) {
    Selector variant = base;
    variant.rule(rule);
    add(variant);
  }
}

TEST(SelectorTest, RefusesRowsThatAreNone) {
  Selector selector;
  using Rows = std::vector<SelectorRow>;
  const auto refused = [&](const Rows& rows, const std::string& phrase) {
    expect_throws<InvalidArgument>([&] { selector.set(CollectiveKind::reduce, rows); }, phrase);
  };
  const Choice choice;
  refused(Rows{{64, choice}}, "growing sizes");
  refused(Rows{{64, choice}, {64, choice}, {INT64_MAX, choice}}, "growing sizes");
  refused(Rows{{INT64_MAX, {Algorithm::automatic, 1}}},
          "reduce: expected an algorithm that can do it, but got auto");
  refused(Rows{{INT64_MAX, {Algorithm::ll, 65}}}, "expected 1 to 64 blocks, but got 65");
  EXPECT_TRUE(selector.rows(CollectiveKind::reduce).empty());
}

TEST(SelectorTest, MalformedTablesAreNamed) {
  const auto rows = [](const std::string& list) {
    return "{\"device\": \"A\", \"ranks\": 2, \"tables\": {\"all_reduce\": " + list + "}}";
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "parse error at line 1"},
      {"{\"device\": \"A\",\n \"ranks\": 2,\n \"tables\": }", "parse error at line 3"},
      {"3", "$: expected a table {…}, but got 3"},
      {"[]", "$: expected at least one table, but got []"},
      {"{\"device\": \"A\", \"ranks\": 1e999, \"tables\": {}}", "expected JSON, but got"},
      {"{\"device\": \"A\", \"tables\": {}}", "$: expected a field \"ranks\""},
      {"{\"device\": 7, \"ranks\": 2, \"tables\": {}}", "$.device: expected a device's name"},
      {"{\"device\": \"A\", \"ranks\": 1, \"tables\": {}}",
       "$.ranks: expected a whole number from 2"},
      {"{\"device\": \"A\", \"ranks\": 2.5, \"tables\": {}}", "but got 2.5"},
      {"{\"device\": \"A\", \"ranks\": 2, \"tables\": []}", "$.tables: expected operations"},
      {"{\"device\": \"A\", \"ranks\": 2, \"tables\": {}, \"x\": 1}",
       "$: expected only the fields device, ranks, tables, registered, but got \"x\""},
      {"{\"device\": \"A\", \"ranks\": 2, \"tables\": {}, \"registered\": 8}",
       "$.registered: expected operations with their rows, but got 8"},
      {"{\"device\": \"A\", \"ranks\": 2, \"tables\": {}, \"registered\": {\"all_gather\": "
       "[{\"algorithm\": \"one_shot\"}]}}",
       "$.registered.all_gather[0].algorithm: expected one of auto, copy, but got \"one_shot\""},
      {"{\"device\": \"A\", \"ranks\": 2, \"tables\": {\"sum\": []}}",
       "$.tables: expected the name of an operation, but got \"sum\""},
      {"[" + rows("[{\"algorithm\": \"ll\"}]") + ", 4]", "$[1]: expected a table"},
      {rows("[]"), "$.tables.all_reduce: expected a list of rows, but got []"},
      {rows("[4]"), "$.tables.all_reduce[0]: expected a row {…}, but got 4"},
      {rows("[{\"blocks\": 4}]"), "$.tables.all_reduce[0]: expected a field \"algorithm\""},
      {rows("[{\"algorithm\": \"fast\"}]"),
       "$.tables.all_reduce[0].algorithm: expected one of ll, ll128, ll128_two_shot, "
       "one_shot, two_shot, nccl, host, "
       "but got "
       "\"fast\""},
      {rows("[{\"algorithm\": \"ll\", \"blocks\": 0}]"),
       "$.tables.all_reduce[0].blocks: expected a whole number from 1 to 64, but got 0"},
      {rows("[{\"algorithm\": \"ll\", \"blocks\": \"8\"}]"), "but got \"8\""},
      {rows("[{\"algorithm\": \"ll\", \"block\": 8}]"), "but got \"block\""},
      {rows("[{\"algorithm\": \"ll\"}, {\"algorithm\": \"one_shot\"}]"),
       "$.tables.all_reduce[0]: expected a field \"up_to_bytes\""},
      {rows("[{\"up_to_bytes\": 9, \"algorithm\": \"ll\"}]"),
       "$.tables.all_reduce[0]: expected a last row for every size"},
      {rows("[{\"up_to_bytes\": 9, \"algorithm\": \"ll\"}, {\"up_to_bytes\": 9, \"algorithm\": "
            "\"ll\"}, {\"algorithm\": \"one_shot\"}]"),
       "$.tables.all_reduce[1].up_to_bytes: expected a whole number from 10"},
      {rows("[{\"up_to_bytes\": 18446744073709551615, \"algorithm\": \"ll\"}, {\"algorithm\": "
            "\"one_shot\"}]"),
       "up_to_bytes: expected a whole number"},
  };
  for (const auto& [json, expected] : cases) {
    SCOPED_TRACE(json);
    expect_throws<InvalidArgument>([&] { (void)Selector::parse(json, 2, "A"); }, expected);
  }
}

TEST(SelectorTest, LoadsTheFileThatIsNamed) {
  const std::string path = ::testing::TempDir() + "selector_table.json";
  std::ofstream(path) << kTable;
  const Setting file("GANTRY_COLL_TABLE", path);
  EXPECT_EQ(all_reduce(Selector::load(4, "Test GPU"), 5000), (Choice{Algorithm::one_shot, 16}));
  {
    const Setting algorithm("GANTRY_COLL_ALGO", "ll");
    EXPECT_EQ(all_reduce(Selector::load(4, "Test GPU"), 5000), (Choice{Algorithm::ll, 8}));
  }
  std::ofstream(path) << "{\n\"device\"";
  expect_throws<InvalidArgument>(
      [] { (void)Selector::load(4, "Test GPU"); },
      "GANTRY_COLL_TABLE=" + path + ": collective table: expected JSON, but got");
  const Setting missing("GANTRY_COLL_TABLE", path + ".none");
  expect_throws<InvalidArgument>([] { (void)Selector::load(4, "Test GPU"); },
                                 "No such file or directory");
}

TEST(SelectorTest, ATableIsARegularFileOfBoundedSize) {
  const std::string pipe = ::testing::TempDir() + "selector_pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string large = ::testing::TempDir() + "selector_large.json";
  std::ofstream(large).put('{');
  ASSERT_EQ(truncate(large.c_str(), off_t{1} << 30), 0);
  const std::pair<std::string, std::string> cases[] = {
      {pipe, "a named pipe"},
      {"/dev/zero", "a device"},
      {"/dev/null", "a device"},
      {::testing::TempDir(), "a directory"},
      {large, "a file of more than 16777216 bytes"}};
  for (const auto& [path, problem] : cases) {
    const Setting file("GANTRY_COLL_TABLE", path);
    expect_throws<InvalidArgument>(
        [] { (void)Selector::load(4, "Test GPU"); },
        "GANTRY_COLL_TABLE: expected a readable file, but got '" + path + "': " + problem);
  }
  unlink(pipe.c_str());
  unlink(large.c_str());
}

TEST(SelectorTest, ShippedTablesServeEveryOperationAtEverySize) {
  for (const std::string_view device : {"NVIDIA H200", "Simulated GPU", "NVIDIA H100 80GB HBM3"}) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      const Selector selector = Selector::load(ranks, device);
      for (int k = 0; k < kCollectiveKinds; ++k) {
        const auto kind = static_cast<CollectiveKind>(k);
        int before = 0;
        for (std::int64_t bytes = 1; bytes <= std::int64_t{1} << 31; bytes *= 2) {
          const Descriptor what = call(kind, bytes, DType::u8);
          const Choice choice = selector.choose(what, bytes);
          EXPECT_TRUE(can_serve(choice.algorithm, what, bytes)) << what.str();
          EXPECT_TRUE(ranks > 2 || !needs_three_ranks(choice.algorithm));
          EXPECT_GE(static_cast<int>(choice.algorithm), before)
              << "sizes go ll, ll128, ll128_two_shot, one_shot, two_shot";
          before = static_cast<int>(choice.algorithm);
        }
      }
    }
  }
}

TEST(SelectorTest, SimulatedDevicesReachEveryAlgorithmOfOneMachine) {
  const Selector selector = Selector::load(4, "Simulated GPU");
  std::set<Algorithm> met;
  for (int k = 0; k < kCollectiveKinds; ++k) {
    for (std::int64_t bytes = 1; bytes <= 1 << 20; bytes *= 2) {
      met.insert(
          selector.choose(call(static_cast<CollectiveKind>(k), bytes, DType::u8), bytes).algorithm);
    }
  }
  EXPECT_EQ(met, (std::set<Algorithm>{Algorithm::ll, Algorithm::ll128, Algorithm::ll128_two_shot,
                                      Algorithm::one_shot, Algorithm::two_shot}));
}

}  // namespace
}  // namespace gantry
