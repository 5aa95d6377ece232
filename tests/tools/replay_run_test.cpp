// Replays on a simulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <mutex>
#include <set>
#include <thread>

#include "tools/replay/backend.hpp"
#include "tools/replay/replay.hpp"
#include "tools/replay/workload.hpp"

namespace gantry::replay {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The library has one backend per process: the default one is tested here, all by replay_command.
ReplayResult run(const AllocationSequence& sequence, const std::string& backend,
                 ReplayOptions options = {}) {
  CountingDriver counting;
  options.device = Device::cuda(0);
  const auto made = make_backend(backend, options.device);
  return replay(sequence, *made, counting, options);
}

std::string library() { return memory::allocator_backend(); }

TEST(ReplayTest, ExactBackendsWasteNothing) {
  const AllocationSequence sequence = rmm_random_allocations(500, 16);
  const SequenceFacts facts = facts_of(sequence);
  for (const char* name : {"cuda", "bump"}) {
    const ReplayResult result = run(sequence, name, {.repeat = 2});
    SCOPED_TRACE(name);
    EXPECT_TRUE(result.completed());
    EXPECT_EQ(result.backend, name);
    EXPECT_EQ(result.peak_live, facts.peak_live_bytes);
    EXPECT_EQ(result.peak_reserved, facts.peak_live_bytes);
    EXPECT_EQ(result.waste(), 0.0);
    EXPECT_EQ(result.leaked_bytes, 0U);
    EXPECT_EQ(result.held_after_empty, 0U);
    EXPECT_EQ(result.done, sequence.ops.size());
    EXPECT_GT(result.first_ns, 0);
    EXPECT_GT(result.warm_ns, 0);
  }
  EXPECT_EQ(run(sequence, "cuda").driver_calls_first, sequence.ops.size())
      << "one call per allocation and free";
  EXPECT_EQ(run(sequence, "bump").driver_calls_first, 0U);
}

TEST(ReplayTest, LibraryHoldsAtLeastWhatIsLiveAndGivesAllBack) {
  for (const AllocationSequence& sequence :
       {rmm_random_allocations(1000, 4), random_live_set(200, 2000),
        training_loop({.layers = 3, .steps = 4, .layer_bytes = 4 * kMiB})}) {
    SCOPED_TRACE(sequence.name);
    const ReplayResult result = run(sequence, library(), {.repeat = 2});
    EXPECT_TRUE(result.completed()) << result.error;
    EXPECT_EQ(result.peak_live, facts_of(sequence).peak_live_bytes);
    EXPECT_GE(result.peak_reserved, result.peak_live);
    EXPECT_GE(result.waste(), 0.0);
    EXPECT_LT(result.waste(), 0.9);
    EXPECT_EQ(result.leaked_bytes, 0U);
    EXPECT_GT(result.driver_calls_first, 0U);
  }
}

TEST(ReplayTest, SamplesFollowTheSequence) {
  AllocationSequence sequence;
  for (int i = 0; i < 32; ++i) {
    const auto block = sequence.allocate(kMiB);
    if (i % 2 == 1) sequence.free(block);
  }
  const ReplayResult result = run(sequence, "bump", {.repeat = 0, .samples = 6});
  EXPECT_EQ(result.warm_ns, 0);
  ASSERT_EQ(result.samples.size(), 6U);
  EXPECT_EQ(result.samples.back().op, 48U);
  EXPECT_EQ(result.samples.back().live_bytes, 16 * kMiB);
  for (const MemorySample& sample : result.samples) {
    EXPECT_EQ(sample.op % 8, 0U);
    EXPECT_EQ(sample.reserved_bytes, sample.live_bytes) << "bump holds what is live";
  }
}

TEST(ReplayTest, LimitLeadsToOutOfMemoryAndTheRestGoesOn) {
  AllocationSequence sequence;
  const auto a = sequence.allocate(64 * kMiB);
  const auto too_much = sequence.allocate(64 * kMiB);
  const auto c = sequence.allocate(16 * kMiB);
  sequence.free(too_much);
  sequence.free(a);
  sequence.free(c);
  for (const std::string& name : {std::string("cuda"), std::string("bump"), library()}) {
    SCOPED_TRACE(name);
    const ReplayResult result = run(sequence, name, {.repeat = 1, .limit_bytes = 100 * kMiB});
    EXPECT_FALSE(result.completed());
    EXPECT_EQ(result.ooms, 2U) << "once per pass";
    EXPECT_EQ(result.first_oom_op, std::optional<std::uint64_t>(1));
    EXPECT_EQ(result.done, 6U);
    EXPECT_LE(result.peak_reserved, 100 * kMiB);
    EXPECT_EQ(result.leaked_bytes, 0U);
    memory::set_fraction(1.0, Device::cuda(0));
  }
}

TEST(ReplayTest, GivesUpAfterManyFailures) {
  AllocationSequence sequence;
  for (int i = 0; i < 5000; ++i) sequence.allocate(kMiB);
  const ReplayResult result = run(sequence, "bump", {.repeat = 3, .limit_bytes = kMiB / 2});
  EXPECT_LT(result.done, 1000U);
  EXPECT_LT(result.ooms, 400U);
  EXPECT_EQ(result.warm_ns, 0) << "a pass that failed is not repeated";
}

TEST(ReplayTest, GivesUpWhenTimeIsOver) {
  const ReplayResult result =
      run(rmm_random_allocations(2000, 1), "bump", {.repeat = 3, .max_seconds = 1e-9});
  EXPECT_FALSE(result.completed());
  EXPECT_EQ(result.ooms, 0U);
  EXPECT_LT(result.done, 4000U);
}

// Notes which thread made each call.
class WatchedBackend : public Backend, public memory::Allocator {
 public:
  memory::Allocator& allocator() override { return *this; }
  std::uint64_t allocated_bytes() override { return leak; }
  std::uint64_t reserved_bytes() override { return 0; }
  std::uint64_t peak_reserved_bytes() override { return 0; }
  void reset_peak() override {}
  void set_limit(std::uint64_t) override {}
  memory::Block allocate(const Stream& stream, std::size_t bytes,
                         std::size_t /*alignment*/) override {
    calls.emplace_back(std::this_thread::get_id(), bytes, stream.id());
    return {.data = this, .bytes = bytes, .device = Device::cuda(0), .allocator = this};
  }
  void deallocate(memory::Block& block) noexcept override {
    if (block.bytes == 13) leak += 13;  // forgets these
    block = {};
  }
  void record_stream(const memory::Block&, const Stream&) override {}
  void empty_cache(Device) override {}
  std::string name() const override { return "watched"; }

  struct Call {
    Call(std::thread::id t, std::size_t b, std::uint64_t s) : thread(t), bytes(b), stream(s) {}
    std::thread::id thread;
    std::size_t bytes;
    std::uint64_t stream;
  };
  std::vector<Call> calls;  // no lock: turns order the calls
  std::uint64_t leak = 0;
};

TEST(ReplayTest, ThreadsAndStreamsFollowTheLog) {
  AllocationSequence sequence;
  for (std::uint64_t i = 0; i < 60; ++i) {
    sequence.allocate(i + 100, static_cast<std::uint16_t>(i % 3),
                      static_cast<std::uint16_t>(i % 4));
  }
  WatchedBackend watched;
  CountingDriver counting;
  const ReplayResult result =
      replay(sequence, watched, counting, {.repeat = 0, .threads_as_logged = true});
  EXPECT_EQ(result.done, 60U);
  ASSERT_EQ(watched.calls.size(), 60U);
  std::set<std::thread::id> threads;
  std::set<std::uint64_t> streams;
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(watched.calls[i].bytes, i + 100) << "the order is the log's";
    EXPECT_EQ(watched.calls[i].thread, watched.calls[i % 4].thread);
    EXPECT_EQ(watched.calls[i].stream, watched.calls[i % 3].stream);
    threads.insert(watched.calls[i].thread);
    streams.insert(watched.calls[i].stream);
  }
  EXPECT_EQ(threads.size(), 4U);
  EXPECT_EQ(streams.size(), 3U);
}

TEST(ReplayTest, LeaksAreFound) {
  AllocationSequence sequence;
  sequence.free(sequence.allocate(13));
  sequence.allocate(13);
  WatchedBackend watched;
  CountingDriver counting;
  EXPECT_EQ(replay(sequence, watched, counting, {.repeat = 0}).leaked_bytes, 26U);
}

TEST(CountingDriverTest, CountsCallsAndHeldBytes) {
  CountingDriver counting;
  EXPECT_EQ(counting.calls(), 0U);
  void* data = driver().allocate(0, 3 * kMiB);
  const NativeChunk chunk = driver().create_chunk(0, 2 * kMiB);
  EXPECT_EQ(counting.held_bytes(), 5 * kMiB);
  driver().deallocate(0, data);
  EXPECT_EQ(counting.held_bytes(), 2 * kMiB);
  EXPECT_EQ(counting.peak_held_bytes(), 5 * kMiB);
  counting.reset_peak();
  EXPECT_EQ(counting.peak_held_bytes(), 2 * kMiB);
  driver().release_chunk(chunk);
  EXPECT_EQ(counting.held_bytes(), 0U);
  EXPECT_EQ(counting.calls(), 4U);
}

TEST(BackendTest, ConfigurationKeepsItsOtherKeys) {
  EXPECT_EQ(with_backend("", "vmm"), "backend:vmm");
  EXPECT_EQ(with_backend("fraction:0.5,backend:native,gc_threshold:0.8", "vmm"),
            "backend:vmm,fraction:0.5,gc_threshold:0.8");
}

TEST(BackendTest, RefusesUnknownNames) {
  try {
    (void)make_backend("best", Device::cuda(0));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "--backend: expected one of vmm, native, async, cuda, bump, but got 'best'");
  }
}

}  // namespace
}  // namespace gantry::replay
