// Probes between devices that work, and between some whose writes get lost.
#include "collectives/peers/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/device/properties.hpp>

#include "collectives/peers/reach.hpp"
#include "tests/collectives/losing_driver.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr auto kDeadline = std::chrono::seconds(20);
constexpr int kRanks = 3;

// Memory of every rank on a device of its own, reached by all.
class PeerProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_DEVICES(kRanks);
    for (const char* name : {"GANTRY_P2P", "NCCL_P2P_DISABLE"}) unsetenv(name);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int peer = 0; peer < kRanks; ++peer) {
        if (!reaches(Device::cuda(rank), Device::cuda(peer))) GTEST_SKIP() << "no peer access";
      }
      memory_.push_back(driver().allocate(rank, kProbeBytes));
    }
  }
  void TearDown() override {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      driver().deallocate(static_cast<int>(rank), memory_[rank]);
    }
    for (const char* name : {"GANTRY_P2P", "NCCL_P2P_DISABLE"}) unsetenv(name);
  }

  // The reachability of all ranks, who agree. `seen(rank)` is the memory as that rank addresses it.
  PeerReachability probe(const std::function<std::vector<void*>(int)>& seen,
                         std::chrono::milliseconds deadline = kDeadline,
                         const PeerCacheFolder& cache = std::nullopt) {
    auto bootstraps = make_local_bootstraps(kRanks);
    std::vector<PeerReachability> results(kRanks);
    testing::rank_threads(kRanks, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      results[at] = probe_peers(*bootstraps[at], rank, kRanks, rank, seen(rank), deadline, cache);
    });
    for (const PeerReachability& reachability : results) {
      EXPECT_EQ(reachability.usable, results[0].usable);
      EXPECT_EQ(reachability.why, results[0].why);
    }
    return results[0];
  }
  PeerReachability probe() {
    return probe([&](int) { return memory_; });
  }

  // Only the pairs for which `is_bad(writer, owner)` holds cannot be used.
  static void expect_bad(const PeerReachability& reachability,
                         const std::function<bool(int, int)>& is_bad) {
    for (int writer = 0; writer < kRanks; ++writer) {
      for (int owner = 0; owner < kRanks; ++owner) {
        EXPECT_EQ(reachability.can_use(writer, owner), !is_bad(writer, owner))
            << writer << " to " << owner;
      }
    }
  }

  std::vector<void*> memory_;
};

TEST_F(PeerProbeTest, FindsThatAllPairsWork) {
  const PeerReachability reachability = probe();
  EXPECT_TRUE(reachability.all());
  EXPECT_EQ(reachability.why, "");
  EXPECT_FALSE(reachability.was_cached);
}

TEST_F(PeerProbeTest, NoticesStoresThatEndSomewhereElse) {
  // Rank 0 sees other memory in place of rank 2's: what it writes it can read back.
  void* const elsewhere = driver().allocate(2, kProbeBytes);
  const PeerReachability reachability = probe([&](int rank) {
    std::vector<void*> seen = memory_;
    if (rank == 0) seen[2] = elsewhere;
    return seen;
  });
  driver().deallocate(2, elsewhere);
  expect_bad(reachability, [](int writer, int owner) { return writer == 0 && owner == 2; });
  EXPECT_THAT(
      reachability.why,
      HasSubstr("from rank 0 to the memory of rank 2: stores of kernels do not arrive (seen "
                "by rank 2)"));
}

TEST_F(PeerProbeTest, NoticesCopiesThatGetLost) {
  PeerReachability reachability;
  {
    testing::LosingDriver losing(1);
    reachability = probe();
  }
  expect_bad(reachability, [](int writer, int owner) { return writer != 1 && owner == 1; });
  EXPECT_THAT(reachability.why,
              HasSubstr("from rank 2 to the memory of rank 1: writes of copy engines "
                        "do not arrive"));
}

TEST_F(PeerProbeTest, RefusalsAreNamed) {
  PeerReachability reachability;
  {
    testing::FaultDriver faults;
    faults.fail_on("copy", 1, testing::kIllegalAddress, 1000);
    reachability = probe();
  }
  expect_bad(reachability, [](int writer, int owner) { return writer != owner; });
  EXPECT_THAT(reachability.why, HasSubstr("the driver refuses writes (seen by rank 0: "));
  EXPECT_THAT(reachability.why, HasSubstr("cudaErrorIllegalAddress"));
}

// Says that no event is ever reached.
class StuckDriver final : public testing::FaultDriver {
 public:
  bool event_reached(NativeEvent event) noexcept override {
    (void)FaultDriver::event_reached(event);
    return false;
  }
};

TEST_F(PeerProbeTest, WorkThatDoesNotEndIsGivenUp) {
  GANTRY_REQUIRE_SIM();
  PeerReachability reachability;
  {
    StuckDriver stuck;
    reachability = probe([&](int) { return memory_; }, std::chrono::milliseconds(20));
    for (int device = 0; device < kRanks; ++device) driver().synchronize_device(device);
  }
  expect_bad(reachability, [](int writer, int owner) { return writer != owner; });
  EXPECT_THAT(reachability.why, HasSubstr("writes do not end in time"));
}

// Counts the ranks that wait for the writes of all.
class CountingBootstrap final : public Bootstrap {
 public:
  CountingBootstrap(std::unique_ptr<Bootstrap> wrapped, std::atomic<int>& waiting)
      : wrapped_(std::move(wrapped)), waiting_(waiting) {}
  std::vector<std::string> all_gather(const std::string& bytes) override {
    if (bytes == "written") ++waiting_;
    return wrapped_->all_gather(bytes);
  }
  int lost_rank() const noexcept override { return wrapped_->lost_rank(); }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    return wrapped_->subset(members, name);
  }

 private:
  const std::unique_ptr<Bootstrap> wrapped_;
  std::atomic<int>& waiting_;
};

// Calls a function before the first copy, and says of every event at first that it is not reached.
class SlowDriver final : public testing::FaultDriver {
 public:
  explicit SlowDriver(std::function<void()> before_copy) : before_copy_(std::move(before_copy)) {}
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    if (!was_slow_.exchange(true)) before_copy_();
    FaultDriver::copy(dst, src, bytes, stream);
  }
  bool event_reached(NativeEvent event) noexcept override {
    thread_local bool is_first = false;
    is_first = !is_first;
    return !is_first && FaultDriver::event_reached(event);
  }

 private:
  const std::function<void()> before_copy_;
  std::atomic<bool> was_slow_{false};
};

TEST_F(PeerProbeTest, ASlowRankDoesNotDelayOtherRanksDeadlines) {
  GANTRY_REQUIRE_SIM();
  std::atomic<int> waiting = 0;
  std::atomic<std::chrono::seconds> time{};
  const ProbeClock clock = [&] { return std::chrono::steady_clock::time_point(time.load()); };
  auto bootstraps = make_local_bootstraps(kRanks);
  std::vector<PeerReachability> results(kRanks);
  {
    SlowDriver slow([&] {
      while (waiting < kRanks - 1) std::this_thread::yield();
      time = 2 * kDeadline;
    });
    testing::rank_threads(kRanks, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      CountingBootstrap bootstrap(std::move(bootstraps[at]), waiting);
      results[at] =
          probe_peers(bootstrap, rank, kRanks, rank, memory_, kDeadline, std::nullopt, clock);
    });
  }
  for (const PeerReachability& reachability : results) {
    EXPECT_TRUE(reachability.all()) << reachability.why;
  }
}

TEST_F(PeerProbeTest, VariablesSwitchItOffAndSkipIt) {
  setenv("GANTRY_P2P", "on", 1);
  void* nowhere = nullptr;
  const auto unusable = [&](int) { return std::vector<void*>(kRanks, nowhere); };
  EXPECT_TRUE(probe(unusable).all());
  setenv("NCCL_P2P_DISABLE", "1", 1);
  EXPECT_TRUE(probe(unusable).all());
  unsetenv("GANTRY_P2P");
  const PeerReachability off = probe(unusable);
  EXPECT_FALSE(off.can_use(0, 1));
  EXPECT_EQ(off.why, "switched off on rank 0 by GANTRY_P2P or NCCL_P2P_DISABLE");
  setenv("GANTRY_P2P", "maybe", 1);
  testing::expect_throws<InvalidArgument>([] { (void)peer_mode(); },
                                          "GANTRY_P2P: expected off, on or probe, but got 'maybe'");
}

TEST_F(PeerProbeTest, ResultsAreKeptForTheSameDevicesAndBoot) {
  const testing::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  const auto unusable = [&](int) { return std::vector<void*>(kRanks, nullptr); };
  PeerReachability bad;
  {
    testing::LosingDriver losing(1);
    bad = probe([&](int) { return memory_; }, kDeadline, folder / "deep");
  }
  EXPECT_FALSE(bad.all());
  EXPECT_FALSE(bad.was_cached);
  // Nothing is tried any more, for good or bad.
  const PeerReachability again = probe(unusable, kDeadline, folder / "deep");
  EXPECT_TRUE(again.was_cached);
  EXPECT_EQ(again.usable, bad.usable);
  EXPECT_EQ(again.why, bad.why);
  // After the next boot it is.
  setenv("GANTRY_BOOT_ID", "another boot", 1);
  const PeerReachability later = probe([&](int) { return memory_; }, kDeadline, folder / "deep");
  unsetenv("GANTRY_BOOT_ID");
  EXPECT_FALSE(later.was_cached);
  EXPECT_TRUE(later.all());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "deep"), {}), 2);
}

TEST_F(PeerProbeTest, FindingsThatMayChangeAreNotCached) {
  GANTRY_REQUIRE_SIM();
  const testing::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  {
    testing::FaultDriver faults;
    faults.fail_on("copy", 1, testing::kIllegalAddress, 1000);
    EXPECT_FALSE(probe([&](int) { return memory_; }, kDeadline, folder).all());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  {
    StuckDriver stuck;
    EXPECT_FALSE(probe([&](int) { return memory_; }, std::chrono::milliseconds(20), folder).all());
    for (int device = 0; device < kRanks; ++device) driver().synchronize_device(device);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(probe([&](int) { return memory_; }, kDeadline, folder).all());
}

TEST(PeerCacheTest, DamagedFilesCountForNothing) {
  const PeerReachability reachability{.size = 2, .usable = {1, 0, 0, 1}, .why = "wires \"cut\""};
  const std::string text = PeerCache::to_text(reachability, "key");
  const auto back = PeerCache::from_text(text, "key");
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->usable, reachability.usable);
  EXPECT_EQ(back->why, reachability.why);
  EXPECT_FALSE(PeerCache::from_text(text, "other key").has_value());
  for (const char* bad : {"", "{", "[]", "null", R"({"key":"key"})",
                          R"({"key":"key","size":2,"usable":[1],"why":""})",
                          R"({"key":"key","size":-1,"usable":[1],"why":""})",
                          R"({"key":"key","size":1,"usable":["x"],"why":""})",
                          R"({"key":"key","size":1,"usable":[1],"why":5})"}) {
    EXPECT_FALSE(PeerCache::from_text(bad, "key").has_value()) << bad;
  }
}

TEST(ExplainUnreachableTest, NamesTheVariableThatHidesADevice) {
  GANTRY_REQUIRE_DEVICES(1);
  const std::string own = device_properties(Device::cuda(0)).uuid;
  EXPECT_EQ(explain_unreachable(1, own), "");
  const char* const before = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string saved = before == nullptr ? "" : before;
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const std::string text = explain_unreachable(3, "GPU-other");
  if (before == nullptr) {
    unsetenv("CUDA_VISIBLE_DEVICES");
  } else {
    setenv("CUDA_VISIBLE_DEVICES", saved.c_str(), 1);
  }
  EXPECT_THAT(text, HasSubstr("rank 3's device GPU-other is not visible to this process"));
  EXPECT_THAT(text, HasSubstr(own));
  EXPECT_THAT(text, HasSubstr("because of CUDA_VISIBLE_DEVICES=0"));
}

}  // namespace
}  // namespace gantry
