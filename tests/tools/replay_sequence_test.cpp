#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <gantry/core/error.hpp>
#include <random>
#include <set>
#include <sstream>
#include <unordered_map>

#include "tools/replay/allocation_sequence.hpp"
#include "tools/replay/worker.hpp"
#include "tools/replay/workload.hpp"

namespace gantry::replay {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Walks a sequence and fails the test where it breaks the rules of AllocationSequence.
std::vector<std::uint64_t> live_bytes_of(const AllocationSequence& sequence) {
  std::unordered_map<std::uint32_t, std::uint64_t> live;
  std::set<std::uint32_t> seen;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> curve;
  for (const AllocationOp& op : sequence.ops) {
    if (op.is_allocation()) {
      EXPECT_TRUE(seen.insert(op.block).second) << "allocated twice";
      live[op.block] = op.bytes;
      bytes += op.bytes;
    } else {
      EXPECT_EQ(live.count(op.block), 1U) << "freed, but not live";
      bytes -= live[op.block];
      live.erase(op.block);
    }
    curve.push_back(bytes);
  }
  EXPECT_EQ(seen.size(), sequence.blocks);
  return curve;
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

std::string dump_of(const AllocationSequence& sequence) {
  const TemporaryFile file(".gantseq");
  write_dump(sequence, file.path());
  std::ifstream in(file.path(), std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

AllocationSequence small_sequence() {
  AllocationSequence sequence;
  sequence.name = "small";
  const auto a = sequence.allocate(1000);
  const auto b = sequence.allocate(3000, 1, 2);
  sequence.free(a);
  sequence.allocate(500);
  sequence.free(b, 1, 1);
  return sequence;
}

TEST(AllocationSequenceTest, FactsAreExact) {
  const SequenceFacts facts = facts_of(small_sequence());
  EXPECT_EQ(facts.allocations, 3U);
  EXPECT_EQ(facts.peak_live_bytes, 4000U);
  EXPECT_EQ(facts.smallest_bytes, 500U);
  EXPECT_EQ(facts.largest_bytes, 3000U);
  EXPECT_EQ(facts.live_blocks_at_end, 1U);
  EXPECT_EQ(small_sequence().streams, 2);
  EXPECT_EQ(small_sequence().threads, 3);
}

TEST(AllocationSequenceTest, RefusesEmptyAllocations) {
  AllocationSequence sequence;
  EXPECT_THROW(sequence.allocate(0), InvalidArgument);
  EXPECT_EQ(sequence, AllocationSequence());
}

TEST(AllocationSequenceTest, DumpsComeBack) {
  for (const AllocationSequence& sequence : {small_sequence(), random_live_set(20, 200)}) {
    EXPECT_EQ(read_dump(dump_of(sequence), sequence.name), sequence);
  }
}

TEST(AllocationSequenceTest, RefusesDamagedDumps) {
  const std::string good = dump_of(small_sequence());
  const auto read = [](std::string bytes) {
    return error_of([&] { (void)read_dump(bytes, "x"); });
  };
  EXPECT_THAT(read("gantseq"), HasSubstr("begins with gantseq1"));
  EXPECT_THAT(read(good.substr(0, good.size() - 16)),
              HasSubstr("5 operations were announced, but 4"));
  EXPECT_THAT(read(good.substr(0, good.size() - 1)), HasSubstr("announced"));
  const auto damaged = [&](std::size_t op, std::size_t field, char value) {
    std::string bytes = good;
    bytes[32 + op * 16 + field] = value;
    return read(bytes);
  };
  EXPECT_THAT(damaged(0, 8, 7), HasSubstr("operation 0 names block 7"));
  EXPECT_THAT(damaged(0, 8, 1), HasSubstr("operation 0 allocates block 1 out of turn"));
  EXPECT_THAT(damaged(2, 8, 2), HasSubstr("operation 2 frees block 2, not live"));
  EXPECT_THAT(damaged(1, 12, 9), HasSubstr("operation 1 names stream 9"));
  EXPECT_THAT(damaged(1, 14, 9), HasSubstr("operation 1 names thread 9"));
  EXPECT_THAT(damaged(4, 12, 0), HasSubstr("another stream than its own"));
}

TEST(WorkloadTest, RmmFollowsTheBenchmark) {
  for (const auto& [count, max_mib] : {std::pair{1000, 1}, {1000, 64}, {2000, 4096}}) {
    const AllocationSequence sequence =
        rmm_random_allocations(static_cast<std::size_t>(count), static_cast<std::size_t>(max_mib));
    SCOPED_TRACE(sequence.name);
    EXPECT_EQ(sequence.ops.size(), static_cast<std::size_t>(2 * count));
    EXPECT_EQ(sequence.blocks, static_cast<std::uint32_t>(count));
    const std::vector<std::uint64_t> live = live_bytes_of(sequence);
    EXPECT_EQ(live.back(), 0U);
    const SequenceFacts facts = facts_of(sequence);
    EXPECT_LT(facts.peak_live_bytes, 16'000 * kMiB);
    EXPECT_LE(facts.largest_bytes, static_cast<std::uint64_t>(max_mib) * kMiB);
    EXPECT_GT(facts.largest_bytes, static_cast<std::uint64_t>(max_mib) * kMiB * 9 / 10);
  }
  // Where memory is no constraint 73 % of the first steps allocate.
  const AllocationSequence sequence = rmm_random_allocations(10'000, 1);
  const auto allocations = std::count_if(sequence.ops.begin(), sequence.ops.begin() + 5000,
                                         [](const AllocationOp& op) { return op.is_allocation(); });
  EXPECT_NEAR(static_cast<double>(allocations) / 5000, 0.73, 0.03);
}

// The benchmark's own loop, written once more in its own words.
TEST(WorkloadTest, RmmDrawsInTheBenchmarksOrder) {
  const std::size_t count = 500;
  const AllocationSequence sequence = rmm_random_allocations(count, 256);
  std::default_random_engine generator;
  std::uniform_int_distribution<std::size_t> size_distribution(1, 256 * kMiB);
  std::uniform_int_distribution<int> op_distribution(0, 99);
  std::uniform_int_distribution<std::size_t> index_distribution(0, count - 1);
  std::vector<std::pair<std::uint32_t, std::size_t>> allocations;
  std::size_t total = 0;
  std::uint32_t made = 0;
  for (const AllocationOp& op : sequence.ops) {
    const std::size_t size = size_distribution(generator);
    bool allocates = true;
    if (!allocations.empty()) {
      const int chance = op_distribution(generator);
      allocates = chance < 73 && made < count && total + size < 16'000 * kMiB;
    }
    ASSERT_EQ(op.is_allocation(), allocates);
    if (allocates) {
      ASSERT_EQ(op.bytes, size);
      allocations.emplace_back(made++, size);
      total += size;
    } else {
      const std::size_t index = index_distribution(generator) % allocations.size();
      ASSERT_EQ(op.block, allocations[index].first);
      total -= allocations[index].second;
      std::swap(allocations[index], allocations.back());
      allocations.pop_back();
    }
  }
}

TEST(WorkloadTest, TrainingKeepsParametersAndFreesTheRest) {
  TrainingShape shape;
  shape.layers = 4;
  shape.steps = 6;
  const AllocationSequence sequence = training_loop(shape);
  const std::vector<std::uint64_t> live = live_bytes_of(sequence);
  const std::uint64_t parameters = 3 * 4 * shape.layer_bytes;
  EXPECT_EQ(live.back(), parameters);
  EXPECT_EQ(facts_of(sequence).live_blocks_at_end, 12U);
  EXPECT_EQ(std::count(live.begin() + 12, live.end(), parameters), shape.steps)
      << "each step begins and ends with the parameters alone";
  EXPECT_GT(facts_of(sequence).peak_live_bytes, parameters + 4 * shape.layer_bytes);
}

TEST(WorkloadTest, TrainingJitterVariesTheShapesOfSteps) {
  TrainingShape shape;
  shape.layers = 2;
  shape.steps = 40;
  const auto sizes = [&](double jitter) {
    shape.jitter = jitter;
    std::set<std::uint64_t> distinct;
    for (const AllocationOp& op : training_loop(shape).ops) {
      if (op.is_allocation() && op.bytes != shape.layer_bytes) distinct.insert(op.bytes);
    }
    return distinct;
  };
  EXPECT_EQ(sizes(0).size(), 4U) << "0.25, 0.5, 0.75 and 1 of the activation";
  const std::set<std::uint64_t> varied = sizes(0.5);
  EXPECT_GT(varied.size(), 100U);
  EXPECT_GE(*varied.begin(), shape.activation_bytes / 8);
  EXPECT_LE(*varied.rbegin(), shape.activation_bytes * 3 / 2);
  EXPECT_GT(*varied.rbegin(), shape.activation_bytes * 5 / 4);
}

TEST(WorkloadTest, LiveSetReplacesOneBlockAtATime) {
  const AllocationSequence sequence = random_live_set(100, 5000);
  EXPECT_EQ(sequence.ops.size(), 100U + 2 * 5000U);
  (void)live_bytes_of(sequence);
  EXPECT_EQ(facts_of(sequence).live_blocks_at_end, 100U);
  double exponents = 0;
  for (const AllocationOp& op : sequence.ops) {
    if (!op.is_allocation()) continue;
    EXPECT_GE(op.bytes, 512U);
    EXPECT_LE(op.bytes, 8 * kMiB);
    exponents += std::log2(static_cast<double>(op.bytes));
  }
  EXPECT_NEAR(exponents / 5100, 16.0, 0.25) << "log-uniform: the mean is 64 KiB";
}

TEST(WorkloadTest, SameTextGivesTheSameSequence) {
  for (const char* text :
       {"rmm:300,4", "training:layers=2,steps=3", "liveset:30,replacements=50"}) {
    EXPECT_EQ(make_workload(text), make_workload(text)) << text;
  }
  EXPECT_NE(make_workload("liveset:30,replacements=50,seed=2").ops,
            make_workload("liveset:30,replacements=50").ops);
  EXPECT_EQ(make_workload("training").ops, training_loop({}).ops);
}

TEST(WorkloadTest, RefusesBadDescriptions) {
  const auto refused = [](const char* text) {
    return error_of([&] { (void)make_workload(text); });
  };
  EXPECT_THAT(refused("sort:3"), HasSubstr("expected rmm:N,MAXMIB, training"));
  EXPECT_THAT(refused("rmm:1000"), HasSubstr("expected the largest size in MiB"));
  EXPECT_THAT(refused("rmm:0,4"), HasSubstr("number of allocations"));
  EXPECT_THAT(refused("rmm:10,4,9"), HasSubstr("'9' is too much"));
  EXPECT_THAT(refused("training:layers=x"), HasSubstr("layers"));
  EXPECT_THAT(refused("training:depth=2"), HasSubstr("unknown key 'depth'"));
  EXPECT_THAT(refused("training:jitter=1.5"), HasSubstr("from 0 to below 1, but got '1.5'"));
  EXPECT_THAT(refused("liveset"), HasSubstr("expected the number of live blocks"));
}

}  // namespace
}  // namespace gantry::replay
