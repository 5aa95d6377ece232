// release_physical() with a backup: contents come back whatever fails on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr ReleaseOptions kBackup{.backup = PoolBackup::host};

class PoolBackupTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (!IsSkipped() && !driver().supports_virtual_memory(0)) {
      GTEST_SKIP() << "needs virtual memory calls";
    }
  }

  // Bytes that differ from block to block and within one.
  static std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
    std::vector<std::uint8_t> values(bytes);
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::uint8_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<std::uint8_t>(state >> 24);
    }
    return values;
  }
  static std::vector<std::uint8_t> contents(const Buffer& buffer) {
    std::vector<std::uint8_t> seen(buffer.bytes());
    buffer.copy_to(seen);
    return seen;
  }

  // Blocks of several sizes on two streams, with a freed one between them.
  struct Filled {
    Filled() {
      for (std::size_t i = 0; i < kBytes.size(); ++i) {
        blocks.push_back(pool.allocate(i % 2 == 0 ? stream : other, kBytes[i]));
        blocks.back().copy_from(pattern(kBytes[i], static_cast<std::uint32_t>(i)),
                                i % 2 == 0 ? stream : other);
      }
      blocks[2].reset();
      stream.synchronize();
      other.synchronize();
    }
    void expect_contents(const std::string& when) const {
      for (std::size_t i = 0; i < kBytes.size(); ++i) {
        if (!blocks[i]) continue;
        EXPECT_EQ(contents(blocks[i]) == pattern(kBytes[i], static_cast<std::uint32_t>(i)), true)
            << "block " << i << " " << when;
      }
    }

    static constexpr std::array<std::size_t, 6> kBytes{3 * kMib, 3000,       6 * kMib,
                                                       1,        100 * 1024, kMib + 17};
    Stream stream = Stream::current();
    Stream other = Stream::from_pool();
    MemPool pool;
    std::vector<Buffer> blocks;
  };
};

TEST_F(PoolBackupTest, ContentsComeBack) {
  Filled filled;
  const std::size_t before = reserved();
  std::vector<const void*> addresses;
  for (const Buffer& block : filled.blocks) addresses.push_back(block.data());
  filled.pool.release_physical(kBackup);
  EXPECT_FALSE(filled.pool.has_physical());
  EXPECT_EQ(reserved(), 0u) << "all memory is the driver's again";
  // Others use the memory meanwhile.
  {
    Buffer used = allocate(filled.stream, 16 * kMib);
    driver().fill(used.data(), 0xee, used.bytes(), filled.stream.native());
    filled.stream.synchronize();
  }
  empty_cache();
  filled.pool.restore_physical();
  EXPECT_TRUE(filled.pool.has_physical());
  EXPECT_LE(reserved(), before);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    EXPECT_EQ(filled.blocks[i].data(), addresses[i]);
  }
  filled.expect_contents("after one round");
  filled.pool.release_physical(kBackup);
  filled.pool.restore_physical();
  filled.expect_contents("after another round");
}

TEST_F(PoolBackupTest, TheHostMemoryIsFreedAfterwards) {
  Filled filled;
  const std::int64_t before = host_memory_stats().active_bytes.current;
  filled.pool.release_physical(kBackup);
  EXPECT_GE(host_memory_stats().active_bytes.current - before, static_cast<std::int64_t>(4 * kMib));
  filled.pool.restore_physical();
  EXPECT_EQ(host_memory_stats().active_bytes.current, before);
  filled.pool.release_physical();
  EXPECT_EQ(host_memory_stats().active_bytes.current, before) << "none was asked for";
  filled.pool.restore_physical();
}

TEST_F(PoolBackupTest, BlocksFreedMeanwhileStayFree) {
  Filled filled;
  filled.pool.release_physical(kBackup);
  filled.blocks[0].reset();
  filled.blocks[4].reset();
  filled.pool.restore_physical();
  filled.expect_contents("of those that lived on");
  const Buffer reused = filled.pool.allocate(filled.stream, 3 * kMib);
  EXPECT_NE(reused.data(), nullptr);
  filled.expect_contents("beside a new block");
}

TEST_F(PoolBackupTest, ADestroyedPoolRestoresContents) {
  std::optional<MemPool> pool(std::in_place);
  const Stream stream = Stream::current();
  Buffer block = pool->allocate(stream, 3 * kMib);
  block.copy_from(pattern(3 * kMib, 9), stream);
  pool->release_physical(kBackup);
  pool.reset();
  EXPECT_EQ(contents(block) == pattern(3 * kMib, 9), true);
}

TEST_F(PoolBackupTest, AnEmptyPoolNeedsNoBackup) {
  MemPool pool;
  pool.release_physical(kBackup);
  EXPECT_FALSE(pool.has_physical());
  pool.restore_physical();
  EXPECT_TRUE(pool.has_physical());
}

TEST_F(PoolBackupTest, WithoutHostMemoryNothingChanges) {
  Filled filled;
  pinned_allocator().empty_cache(Device::cpu());
  FaultDriver faults;
  faults.fail_on("allocate_pinned", 1, gantry::testing::kOutOfMemory, 1000);
  faults.fail_on("register_host", 1, gantry::testing::kOutOfMemory, 1000);
  EXPECT_THROW(filled.pool.release_physical(kBackup), OutOfMemoryError);
  EXPECT_TRUE(filled.pool.has_physical());
  filled.expect_contents("after the refusal");
}

// Each call of the driver fails once: in the release, or in the restore.
TEST_F(PoolBackupTest, AFailureHalfWayLosesNothing) {
  Filled filled;
  FaultDriver faults;
  filled.pool.release_physical(kBackup);
  const std::map<std::string, std::uint64_t> in_release = faults.counts();
  faults.reset_counts();
  filled.pool.restore_physical();
  const std::map<std::string, std::uint64_t> in_restore = faults.counts();
  EXPECT_GE(in_release.at("copy"), 5u) << "one for each live block";
  EXPECT_GE(in_release.at("unmap"), 1u);
  EXPECT_GE(in_restore.at("map_chunk"), 1u);
  const auto can_fail = [](const std::string& call) {
    return !call.starts_with("destroy_") && call != "restore_device" && call != "event_reached";
  };
  int failures = 0;
  for (const auto& [call, count] : in_release) {
    if (!can_fail(call)) continue;
    for (std::uint64_t nth = 1; nth <= count; ++nth) {
      faults.reset_counts();
      faults.fail_on(call, nth);
      try {
        filled.pool.release_physical(kBackup);
      } catch (const Error&) {
        ++failures;
      }
      faults.fail_nothing();
      filled.pool.restore_physical();
      filled.expect_contents("after " + call + " failed in the release");
    }
  }
  for (const auto& [call, count] : in_restore) {
    if (!can_fail(call)) continue;
    for (std::uint64_t nth = 1; nth <= count; ++nth) {
      filled.pool.release_physical(kBackup);
      faults.reset_counts();
      faults.fail_on(call, nth);
      try {
        filled.pool.restore_physical();
      } catch (const Error&) {
        ++failures;
        EXPECT_FALSE(filled.pool.has_physical()) << call;
      }
      faults.fail_nothing();
      filled.pool.restore_physical();
      filled.expect_contents("after " + call + " failed in the restore");
    }
  }
  EXPECT_GT(failures, 20);
}

TEST_F(PoolBackupTest, TwoFailuresInARowLoseNothing) {
  limit_to(64 * kMib);  // chunks of 2 MiB, so that blocks have runs of their own
  Filled filled;
  FaultDriver faults;
  // The release fails, and so does its rollback: the contents are in the backup.
  faults.fail_on("unmap", 3);  // behind the free memory and the first run
  faults.fail_on("map_chunk", 1, gantry::testing::kUnknown, 1000);
  EXPECT_THAT([&] { filled.pool.release_physical(kBackup); },
              ThrowsMessage<CudaError>(HasSubstr("[unmap]")));
  EXPECT_FALSE(filled.pool.has_physical());
  faults.fail_nothing();
  // The restore fails after it has mapped, and cannot unmap.
  faults.fail_on("copy", 1);
  faults.fail_on("unmap", 1, gantry::testing::kUnknown, 1000);
  EXPECT_THAT([&] { filled.pool.restore_physical(); },
              ThrowsMessage<CudaError>(HasSubstr("[copy]")));
  EXPECT_FALSE(filled.pool.has_physical());
  faults.fail_nothing();
  filled.pool.restore_physical();
  filled.expect_contents("after two failures");
}

TEST_F(PoolBackupTest, ItsSnapshotHasItsSegmentsOnly) {
  Filled filled;
  const Buffer outside = allocate(filled.stream, 7 * kMib);
  const Snapshot own = snapshot(filled.pool);
  ASSERT_FALSE(own.segments.empty());
  std::size_t allocated = 0;
  for (const SegmentInfo& segment : own.segments) {
    EXPECT_EQ(segment.pool_id, std::pair(std::int64_t{0}, std::int64_t(filled.pool.id())));
    allocated += segment.allocated_bytes;
  }
  EXPECT_GE(allocated, 4 * kMib);
  EXPECT_LT(allocated, 11 * kMib);
  EXPECT_EQ(own.settings, snapshot().settings);
  EXPECT_TRUE(own.device_traces.empty());
}

}  // namespace
}  // namespace gantry::memory
