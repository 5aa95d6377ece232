// Random use over several streams and threads under a limit: no memory is reused before the device
// is done with it, and all bytes come back. GANTRY_CAMPAIGN_STEPS makes it longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/backends.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/shadow_owner.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;
using gantry::testing::kMib;
using gantry::testing::ShadowOwner;

constexpr std::size_t kThreads = 4;
constexpr std::size_t kStreams = 4;

struct LiveBlock {
  Block block;
  Stream stream;
  std::unique_ptr<ShadowOwner::Life> life;
};

// Blocks that threads hand to each other.
class Exchange {
 public:
  void give(LiveBlock block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  void take(std::vector<LiveBlock>& into) {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return;
    into.push_back(std::move(blocks_.back()));
    blocks_.pop_back();
  }
  std::vector<LiveBlock> take_all() { return std::exchange(blocks_, {}); }

 private:
  std::mutex mutex_;
  std::vector<LiveBlock> blocks_;
};

class Campaign {
 public:
  Campaign(Allocator& allocator, std::vector<Stream> streams)
      : allocator_(allocator), streams_(std::move(streams)) {}

  void run(std::size_t steps) {
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < kThreads; ++seed) {
      threads.emplace_back([this, seed, steps] { run_thread(seed, steps / kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
    for (LiveBlock& live : exchange_.take_all()) drop(std::move(live));
    for (const Stream& stream : streams_) stream.synchronize();
  }
  [[nodiscard]] const ShadowOwner& shadow() const { return shadow_; }
  [[nodiscard]] int ooms() const { return ooms_.load(); }

 private:
  void run_thread(unsigned seed, std::size_t steps) {
    std::mt19937_64 random(seed);
    std::vector<LiveBlock> live;
    for (std::size_t step = 0; step < steps; ++step) {
      const auto choice = random() % 100;
      if (choice < 47 || live.empty()) {
        add(live, random);
      } else if (choice < 90) {
        drop(take_random(live, random));
      } else if (choice < 96) {
        share(live[random() % live.size()], random);
      } else if (choice < 98) {
        exchange_.give(take_random(live, random));
        exchange_.take(live);
      } else {
        streams_[random() % kStreams].wait(streams_[random() % kStreams]);
      }
      while (live.size() > 60) drop(take_random(live, random));
      if (random() % 20000 == 0) allocator_.empty_cache(Device::cuda(0));
    }
    while (!live.empty()) drop(take_random(live, random));
  }

  static LiveBlock take_random(std::vector<LiveBlock>& live, std::mt19937_64& random) {
    std::swap(live[random() % live.size()], live.back());
    LiveBlock taken = std::move(live.back());
    live.pop_back();
    return taken;
  }

  void add(std::vector<LiveBlock>& live, std::mt19937_64& random) {
    const double exponent = std::uniform_real_distribution<double>(4, 22.5)(random);
    const Stream& stream = streams_[random() % kStreams];
    try {
      const Block block =
          allocator_.allocate(stream, static_cast<std::size_t>(std::exp2(exponent)));
      live.push_back({block, stream, shadow_.begin(block.data, block.bytes, stream)});
    } catch (const OutOfMemoryError&) {
      ++ooms_;
    }
  }

  void drop(LiveBlock live) {
    shadow_.end(std::move(live.life), live.stream);
    allocator_.deallocate(live.block);
  }

  // Another stream uses the block, in order, and the allocator is told.
  void share(LiveBlock& live, std::mt19937_64& random) {
    const Stream& user = streams_[random() % kStreams];
    user.wait(live.stream);
    shadow_.use(*live.life, user);
    if (random() % 2 == 0) {
      allocator_.record_stream(live.block, user);
    } else {
      allocator_.record_use(live.block, user);
    }
  }

  Allocator& allocator_;
  const std::vector<Stream> streams_;
  ShadowOwner shadow_;
  Exchange exchange_;
  std::atomic<int> ooms_{0};
};

class AllocatorCampaignTest : public gantry::testing::HeapTest {
 protected:
  // Host functions are slow on a GPU.
  static std::size_t steps() {
    const std::size_t standard = platform() == Platform::simulated ? 100'000 : 20'000;
    return static_cast<std::size_t>(env::get_int("GANTRY_CAMPAIGN_STEPS", 1, 1'000'000'000)
                                        .value_or(static_cast<std::int64_t>(standard)));
  }
  static std::vector<Stream> some_streams() {
    std::vector<Stream> streams = {Stream::current(Device::cuda(0))};
    while (streams.size() < kStreams) streams.push_back(Stream::from_pool(Device::cuda(0)));
    return streams;
  }
};

class BackendCampaignTest : public AllocatorCampaignTest,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(BackendCampaignTest, NothingIsReusedTooEarlyAndAllComesBack) {
  AllocConfig config;
  // Less than what the blocks would take, so that every step of recovery is taken.
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  config.fraction = 96.0 * kMib / total;
  const std::unique_ptr<DeviceAllocator> owner = make_allocator(GetParam(), config);
  DeviceAllocator& allocator = *owner;
  Campaign campaign(allocator, some_streams());
  campaign.run(steps());
  allocator.verify();
  EXPECT_EQ(campaign.shadow().violations(), 0);
  EXPECT_EQ(campaign.shadow().taken(), 0u);
  allocator.empty_cache(Device::cuda(0));
  const Stats stats = allocator.stats(0);
  expect_stats_add_up(stats);
  EXPECT_EQ(stats.active_bytes.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  EXPECT_EQ(stats.num_ooms, campaign.ooms());
  if (std::string_view(GetParam()) == "vmm") {
    EXPECT_GT(stats.num_alloc_retries, 0) << "the limit was never met";
    EXPECT_GT(stats.reclaimed_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendCampaignTest, ::testing::Values("vmm", "native"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gantry::memory
