// Alignments of every allocator: aligned addresses, no overlap, exact statistics, and all memory
// comes back.
#include "memory/policy/size_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/pluggable_allocator.hpp>

#include "memory/arenas/exportable.hpp"
#include "memory/backends.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;
using gantry::testing::kKib;
using gantry::testing::kMib;
using ::testing::ThrowsMessage;

struct Held {
  std::int64_t requested = 0;  ///< bytes of live blocks, without rounding and padding
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
};

// One way to allocate.
struct Source {
  std::string name;
  std::function<Block(const Stream&, std::size_t bytes, std::size_t alignment)> allocate;
  std::function<void()> empty_cache = [] {};
  std::function<Held()> held{};  ///< none: it counts nothing

  friend std::ostream& operator<<(std::ostream& out, const Source& source) {
    return out << source.name;
  }
};

using Shared = std::shared_ptr<Allocator>;

// Of an allocator that the process never destroys.
Shared unowned(Allocator& allocator) { return {Shared(), &allocator}; }

Source source_of(std::string name, const Shared& allocator, Device device = Device::cuda(0)) {
  return {.name = std::move(name),
          .allocate =
              [allocator](const Stream& stream, std::size_t bytes, std::size_t alignment) {
                return allocator->allocate(stream, bytes, alignment);
              },
          .empty_cache = [allocator, device] { allocator->empty_cache(device); }};
}

Source device_source(std::string name, const std::shared_ptr<DeviceAllocator>& allocator) {
  Source source = source_of(std::move(name), allocator);
  source.held = [allocator]() -> Held {
    const Stats stats = allocator->stats(0);
    expect_stats_add_up(stats);
    return {stats.requested_bytes.all.current, stats.allocated_bytes.all.current,
            stats.reserved_bytes.all.current};
  };
  return source;
}

Source made(const std::string& backend) {
  return device_source(backend, make_allocator(backend, {}));
}

Source made_with_limit(const std::string& name, const std::string& backend) {
  AllocConfig config;
  config.max_split_bytes = 4 * kMib;
  return device_source(name, make_allocator(backend, config));
}

Source pool_without_splits() {
  auto pool = std::make_shared<MemPool>(Device::cuda(0),
                                        MemPoolOptions{.use_on_oom = true, .no_split = true});
  Source source =
      device_source("no_split", {std::shared_ptr<DeviceAllocator>(), &standard_allocator()});
  source.allocate = [pool](const Stream& stream, std::size_t bytes, std::size_t alignment) {
    return pool->allocate(stream, bytes, alignment).release();
  };
  return source;
}

Source pinned_source() {
  Source source = source_of("pinned", unowned(pinned_allocator()), Device::cpu());
  source.held = []() -> Held {
    const HostStats stats = host_memory_stats();
    // Every block is split to its size, so all padding is free.
    return {stats.active_bytes.current, stats.active_bytes.current, stats.allocated_bytes.current};
  };
  return source;
}

Source pluggable_source() {
  auto plugged = std::make_shared<PluggableAllocator>(
      load_allocator(GANTRY_TEST_PLUGGABLE_LIBRARY, "pluggable_alloc", "pluggable_free"));
  Source source = source_of("pluggable", plugged);
  source.held = [plugged]() -> Held {
    const auto bytes = static_cast<std::int64_t>(plugged->live_bytes());
    return {bytes, bytes, bytes};
  };
  return source;
}

class AlignmentTest : public gantry::testing::DeviceTest {
 protected:
  static std::vector<Source> sources() {
    std::vector<Source> all{made("vmm"),
                            made("native"),
                            made_with_limit("native, with a split limit", "native"),
                            pool_without_splits(),
                            pinned_source(),
                            source_of("cpu", unowned(cpu_allocator()), Device::cpu()),
                            pluggable_source()};
    if (driver().supports_memory_pools(0)) all.push_back(made("async"));
    return all;
  }
};

// Live blocks by address, each with its end. insert() fails where two overlap.
class Intervals {
 public:
  [[nodiscard]] bool insert(const Block& block) {
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
    const auto after = ends_.upper_bound(begin);
    if (after != ends_.end() && begin + block.bytes > after->first) return false;
    if (after != ends_.begin() && std::prev(after)->second > begin) return false;
    return ends_.emplace(begin, begin + block.bytes).second;
  }
  void erase(const Block& block) { ends_.erase(reinterpret_cast<std::uintptr_t>(block.data)); }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;
};

// Writes a value to both ends of a block and reads it back.
bool keeps_ends(const Block& block, std::uint8_t value, const Stream& stream) {
  std::array<std::uint8_t, 2> read{};
  auto* const first = static_cast<std::uint8_t*>(block.data);
  auto* const last = first + block.bytes - 1;
  if (block.device.is_cpu()) {
    *first = *last = value;
    read = {*first, *last};
  } else {
    driver().fill(first, value, 1, stream.native());
    driver().fill(last, value, 1, stream.native());
    driver().copy(&read[0], first, 1, stream.native());
    driver().copy(&read[1], last, 1, stream.native());
    stream.synchronize();
  }
  return read[0] == value && read[1] == value;
}

TEST_F(AlignmentTest, RandomBlocksAreAlignedApartAndCounted) {
  const std::array streams{Stream::default_stream(), Stream::from_pool()};
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    source.empty_cache();
    const Held before = source.held ? source.held() : Held{};
    std::mt19937 random(7);
    std::vector<Block> live;
    Intervals intervals;
    std::int64_t requested = 0;
    for (int step = 0; step < 600; ++step) {
      if (live.size() > 24 || (!live.empty() && random() % 3 == 0)) {
        std::swap(live[random() % live.size()], live.back());
        intervals.erase(live.back());
        requested -= static_cast<std::int64_t>(live.back().bytes);
        live.back().allocator->deallocate(live.back());
        live.pop_back();
        continue;
      }
      const std::size_t bytes = 1 + random() % (std::size_t{1} << (random() % 22));
      const std::size_t alignment = std::size_t{1} << (random() % 23);
      const Stream& stream = streams[random() % streams.size()];
      const Block block = source.allocate(stream, bytes, alignment);
      ASSERT_EQ(padding_of(block.data, alignment), 0u) << bytes << " by " << alignment;
      ASSERT_EQ(block.bytes, bytes);
      ASSERT_TRUE(intervals.insert(block)) << bytes << " by " << alignment;
      ASSERT_TRUE(keeps_ends(block, static_cast<std::uint8_t>(step), stream));
      live.push_back(block);
      requested += static_cast<std::int64_t>(bytes);
      if (!source.held || step % 20 != 0) continue;
      const Held held = source.held();
      if (source.name == "pinned" || source.name == "pluggable") {
        ASSERT_GE(held.requested, before.requested + requested);
      } else {
        ASSERT_EQ(held.requested, before.requested + requested);
      }
      ASSERT_GE(held.allocated, held.requested);
      ASSERT_LE(held.allocated, held.reserved);
    }
    for (Block& block : live) block.allocator->deallocate(block);
    for (const Stream& stream : streams) stream.synchronize();
    source.empty_cache();
    if (!source.held) continue;
    const Held after = source.held();
    EXPECT_EQ(after.requested, before.requested);
    EXPECT_EQ(after.allocated, before.allocated);
    EXPECT_EQ(after.reserved, before.reserved) << "memory did not come back";
  }
}

TEST_F(AlignmentTest, OthersThanPowersOfTwoAreRefused) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    for (const std::size_t alignment :
         {std::size_t{0}, std::size_t{3}, std::size_t{48}, std::size_t{513},
          (std::size_t{1} << 40) + 1, std::numeric_limits<std::size_t>::max()}) {
      for (const std::size_t bytes : {0u, 1000u}) {
        EXPECT_THAT(
            [&] { static_cast<void>(source.allocate(Stream::default_stream(), bytes, alignment)); },
            ThrowsMessage<InvalidArgument>(
                "allocate: expected an alignment that is a power of two, but got " +
                std::to_string(alignment)));
      }
    }
  }
}

TEST_F(AlignmentTest, ImpossibleAlignmentsAreOutOfMemory) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    const Stream stream = Stream::default_stream();
    for (const std::size_t alignment : {std::size_t{1} << 50, std::size_t{1} << 63}) {
      EXPECT_THROW(static_cast<void>(source.allocate(stream, 1000, alignment)), OutOfMemoryError);
      EXPECT_THROW(static_cast<void>(source.allocate(
                       stream, std::numeric_limits<std::size_t>::max() - 1000, alignment)),
                   OutOfMemoryError);
      Block none = source.allocate(stream, 0, alignment);
      EXPECT_EQ(none.data, nullptr);
    }
    Block block = source.allocate(stream, 1000, kDefaultAlignment);
    EXPECT_NE(block.data, nullptr);
    block.allocator->deallocate(block);
  }
}

TEST_F(AlignmentTest, PaddingServesOtherRequests) {
  const std::unique_ptr<DeviceAllocator> vmm = make_allocator("vmm", {});
  const Stream stream = Stream::default_stream();
  Buffer first(vmm->allocate(stream, 512));  // so that the next address is not aligned
  Buffer aligned(vmm->allocate(stream, 4096, 64 * kKib));
  EXPECT_EQ(vmm->stats(0).allocated_bytes.all.current, 512 + 4096);
  Buffer between(vmm->allocate(stream, 32 * kKib));
  EXPECT_LT(between.data(), aligned.data()) << "the memory before the aligned block is lost";
  EXPECT_GT(between.data(), first.data());
}

TEST_F(AlignmentTest, ExportsBeginAtTheAlignedAddress) {
  const std::unique_ptr<DeviceAllocator> native = make_allocator("native", {});
  auto& exportable = dynamic_cast<ExportableAllocator&>(*native);
  const Stream stream = Stream::default_stream();
  // Large blocks of a segment keep their padding.
  const Buffer first(native->allocate(stream, 3 * kMib + 1));
  const Buffer aligned(native->allocate(stream, 3 * kMib, 512 * kKib));
  ASSERT_GT(native->stats(0).allocated_bytes.all.current,
            6 * static_cast<std::int64_t>(kMib) + 512);
  const BlockExtent one = exportable.pin(first.block());
  const BlockExtent other = exportable.pin(aligned.block());
  ASSERT_EQ(one.extent_id, other.extent_id);
  EXPECT_EQ(aligned.as<const char>().data() - other.offset,
            first.as<const char>().data() - one.offset);
  exportable.unpin(first.block());
  exportable.unpin(aligned.block());
}

TEST_F(AlignmentTest, BlocksOfADeviceAreAlignedByAllEntryPoints) {
  const Stream stream = Stream::default_stream();
  constexpr std::size_t kAlignment = 2 * kMib;
  const auto is_aligned = [](const Buffer& buffer) {
    return buffer && padding_of(buffer.data(), kAlignment) == 0;
  };
  EXPECT_TRUE(is_aligned(allocate(stream, 5000, kAlignment)));
  EXPECT_TRUE(is_aligned(pinned(5000, kAlignment)));
  EXPECT_TRUE(is_aligned(Buffer(allocate_cpu(5000, kAlignment))));
  MemPool pool;
  EXPECT_TRUE(is_aligned(pool.allocate(stream, 5000, kAlignment)));
  const MemPoolGuard guard(pool);
  EXPECT_TRUE(is_aligned(allocate(stream, 5000, kAlignment)));
}

}  // namespace
}  // namespace gantry::memory
