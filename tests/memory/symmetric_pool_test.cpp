#include <gantry/memory/symmetric_pool.hpp>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/device/peer.hpp>

#include "tests/memory/allocator_contract.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/symmetric_rank.hpp"
#include "tests/support/pipe_process.hpp"

namespace gantry::testing {

INSTANTIATE_TEST_SUITE_P(SymmetricPool, AllocatorContract,
                         ::testing::Values(AllocatorProvider{"symmetric",
                                                             []() -> memory::Allocator& {
                                                               static auto& pool =
                                                                   *new memory::SymmetricPool(
                                                                       Device::cuda(0), 64 * kMib);
                                                               return pool.allocator();
                                                             },
                                                             Device::cuda(0), false}),
                         [](const auto& info) { return info.param.label; });

}  // namespace gantry::testing

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::OffsetModel;
using gantry::testing::PipeProcess;
using gantry::testing::Rank;
using gantry::testing::StreamHold;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SymmetricPoolTest : public gantry::testing::HeapTest {
 protected:
  static void fill(const Buffer& buffer, std::uint8_t value, const Stream& stream) {
    driver().fill(buffer.data(), value, buffer.bytes(), stream.native());
  }
  static bool holds_only(const Buffer& buffer, std::uint8_t value, const Stream& stream) {
    std::vector<std::uint8_t> bytes(buffer.bytes());
    driver().copy(bytes.data(), buffer.data(), bytes.size(), stream.native());
    stream.synchronize();
    return std::ranges::all_of(bytes, [value](std::uint8_t byte) { return byte == value; });
  }
};

TEST_F(SymmetricPoolTest, OffsetsAreTheSameOnAllRanksAndThoseOfTheModel) {
  GANTRY_REQUIRE_DEVICES(2);
  int refused = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rank first(0, 2 * kMib, 100 + seed);
    Rank second(1, 2 * kMib, 200 + seed);
    OffsetModel model;
    std::map<int, std::size_t> live;
    std::mt19937 random(seed);
    for (int step = 0; step < 400; ++step) {
      first.fidget();
      second.fidget();
      if (!live.empty() && (live.size() > 30 || random() % 5 < 2)) {
        const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
        first.free(victim->first);
        second.free(victim->first);
        model.free(victim->second);
        live.erase(victim);
      } else {
        const auto magnitude = 4 + random() % 15;
        const std::size_t bytes = 1 + random() % (std::size_t{1} << magnitude);
        const std::size_t expected = model.where(bytes);
        bool fits = true;
        for (Rank* rank : {&first, &second}) {
          const SymmetricUsage usage = rank->pool.usage();
          if (expected + OffsetModel::rounded(bytes) <= usage.local_begin) continue;
          ASSERT_EQ(expected, usage.symmetric_end);
          EXPECT_THROW(rank->allocate(-1, bytes), OutOfMemoryError);
          fits = false;
        }
        if (fits) {
          ASSERT_EQ(first.allocate(step, bytes), expected);
          ASSERT_EQ(second.allocate(step, bytes), expected);
          live.emplace(step, model.allocate(bytes));
        } else {
          ++refused;
        }
      }
      ASSERT_FALSE(first.blocks_overlap());
      ASSERT_FALSE(second.blocks_overlap());
      ASSERT_EQ(first.pool.sequence(), second.pool.sequence());
      ASSERT_EQ(first.pool.usage().symmetric_bytes, second.pool.usage().symmetric_bytes);
    }
    EXPECT_EQ(first.violations(), 0);
    EXPECT_EQ(second.violations(), 0);
  }
  EXPECT_GT(refused, 10) << "the ends hardly ever met";
}

TEST_F(SymmetricPoolTest, SequenceTellsWhenRanksPart) {
  SymmetricPool one(Device::cuda(0), kMib);
  SymmetricPool other(Device::cuda(0), kMib);
  const Stream stream = Stream::current();
  const Buffer a = one.allocate(100, stream);
  const Buffer b = other.allocate(500, stream);  // the same after rounding
  const Buffer local = other.allocate_local(500, stream);
  EXPECT_EQ(one.sequence(), other.sequence());
  const Buffer c = one.allocate(1000, stream);
  EXPECT_NE(one.sequence(), other.sequence());
}

TEST_F(SymmetricPoolTest, AnotherStreamGetsTheBlockBehindOneWait) {
  FaultDriver faults;
  SymmetricPool pool(Device::cuda(0), 4 * kMib);
  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  StreamHold hold(a);
  Buffer old = pool.allocate(kMib, a);
  fill(old, 1, a);
  old.reset();
  faults.reset_counts();
  const Buffer block = pool.allocate(kMib, b);
  EXPECT_EQ(faults.calls("wait_event"), 1u);
  EXPECT_EQ(faults.calls("synchronize_event") + faults.calls("event_reached"), 0u);
  EXPECT_EQ(pool.offset_of(block), 0u);
  fill(block, 2, b);
  EXPECT_FALSE(b.query());
  hold.release();
  a.synchronize();
  EXPECT_TRUE(holds_only(block, 2, b));
}

TEST_F(SymmetricPoolTest, TheSameStreamGetsTheBlockWithoutWait) {
  FaultDriver faults;
  SymmetricPool pool(Device::cuda(0), 4 * kMib);
  const Stream stream = Stream::from_pool();
  const StreamHold hold(stream);
  pool.allocate(kMib, stream).reset();
  faults.reset_counts();
  EXPECT_EQ(pool.offset_of(pool.allocate(kMib, stream)), 0u);
  EXPECT_EQ(faults.calls("wait_event") + faults.calls("record_event"), 0u);
}

TEST_F(SymmetricPoolTest, RecordedStreamsAreWaitedForToo) {
  FaultDriver faults;
  SymmetricPool pool(Device::cuda(0), 4 * kMib);
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  for (const bool precise : {false, true}) {
    StreamHold hold(user);
    Buffer old = pool.allocate(kMib, own);
    if (!precise) pool.allocator().record_stream(old.block(), user);
    fill(old, 1, user);
    if (precise) pool.allocator().record_use(old.block(), user);
    old.reset();
    faults.reset_counts();
    const Buffer block = pool.allocate(kMib, own);
    EXPECT_EQ(pool.offset_of(block), 0u);
    EXPECT_EQ(faults.calls("wait_event"), 1u);
    fill(block, 2, own);
    EXPECT_FALSE(own.query());
    hold.release();
    user.synchronize();
    EXPECT_TRUE(holds_only(block, 2, own));
  }
}

TEST_F(SymmetricPoolTest, LocalBlocksWaitForSymmetricOnesThatLayThere) {
  SymmetricPool pool(Device::cuda(0), 2 * kMib);
  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  StreamHold hold(a);
  Buffer old = pool.allocate(2 * kMib, a);
  fill(old, 1, a);
  old.reset();
  const Buffer local = pool.allocate_local(512 * kKib, b);
  EXPECT_EQ(pool.offset_of(local), 2 * kMib - 512 * kKib);
  fill(local, 2, b);
  EXPECT_FALSE(b.query());
  const Buffer symmetric = pool.allocate(1536 * kKib, b);
  EXPECT_EQ(pool.offset_of(symmetric), 0u);
  hold.release();
  a.synchronize();
  EXPECT_TRUE(holds_only(local, 2, b));
}

TEST_F(SymmetricPoolTest, TellsWhatIsWhereWhenTheEndsMeet) {
  SymmetricPool pool(Device::cuda(0), 4 * kMib);
  const Stream stream = Stream::current();
  const Buffer symmetric = pool.allocate(kMib, stream);
  const Buffer local = pool.allocate_local(2 * kMib, stream);
  const std::uint64_t sequence = pool.sequence();
  for (const bool is_local : {false, true}) {
    try {
      const Buffer none =
          is_local ? pool.allocate_local(kMib + 1, stream) : pool.allocate(kMib + 1, stream);
      FAIL();
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("room for 1.00 MiB ") + (is_local ? "local" : "symmetric") +
                            " was expected, but the largest free place at that end has 1.00 MiB. "
                            "Of the pool's 4.00 MiB on cuda:0, 1.00 MiB are in symmetric blocks "
                            "and 2.00 MiB in local ones"));
      EXPECT_EQ(error.breakdown().requested, static_cast<std::int64_t>(kMib + 512));
      EXPECT_EQ(error.breakdown().largest_free, static_cast<std::int64_t>(kMib));
      EXPECT_EQ(error.breakdown().allocated, static_cast<std::int64_t>(3 * kMib));
      EXPECT_EQ(error.breakdown().reserved, static_cast<std::int64_t>(4 * kMib));
    }
  }
  EXPECT_EQ(pool.sequence(), sequence);
  EXPECT_EQ(pool.use_count(), 2u);
  const Buffer rest = pool.allocate(kMib, stream);
  EXPECT_EQ(pool.offset_of(rest), kMib);
  EXPECT_EQ(pool.usage().symmetric_end, pool.usage().local_begin);
}

TEST_F(SymmetricPoolTest, RejectsBadArguments) {
  EXPECT_THAT([] { SymmetricPool(Device::cpu(), kMib); },
              ThrowsMessage<InvalidArgument>("SymmetricPool: a CUDA device was expected, but got "
                                             "cpu"));
  EXPECT_THAT([] { SymmetricPool(Device::cuda(0), 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("at least one byte was expected")));
  for (const std::size_t bytes : {std::size_t{1} << 60, ~std::size_t{0}}) {
    EXPECT_THROW(SymmetricPool(Device::cuda(0), bytes), OutOfMemoryError);
  }
  SymmetricPool pool(Device::cuda(0), 1);
  EXPECT_EQ(pool.bytes(), 2 * kMib);
  EXPECT_THAT([&] { static_cast<void>(pool.data_at(pool.bytes())); },
              ThrowsMessage<InvalidArgument>(HasSubstr("an offset below 2097152 was expected")));
  const Buffer foreign = allocate(1000, Stream::current());
  EXPECT_THAT([&] { static_cast<void>(pool.offset_of(foreign)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a block of this pool was expected")));
  EXPECT_THAT([&] { static_cast<void>(pool.offset_of(Buffer())); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got a null block")));
  if (device_count() > 1) {
    EXPECT_THAT(
        [&] { static_cast<void>(pool.allocate(8, Stream::current(Device::cuda(1)))); },
        ThrowsMessage<InvalidArgument>(HasSubstr("a stream of cuda:0 was expected, but got one of "
                                                 "cuda:1")));
  }
  EXPECT_EQ(pool.use_count(), 0u);
}

TEST_F(SymmetricPoolTest, ServesWhoeverAsksForDeviceMemory) {
  SymmetricPool pool(Device::cuda(0), kMib);
  const Stream stream = Stream::current();
  set_allocator(Device::cuda(0), &pool.allocator());
  Buffer first = allocate(1000, stream);
  const Buffer second = allocate(1000, stream);
  set_allocator(Device::cuda(0), nullptr);
  EXPECT_EQ(pool.offset_of(first), 0u);
  EXPECT_EQ(pool.offset_of(second), 1024u);
  EXPECT_EQ(pool.data_at(1024), second.data());
  EXPECT_EQ(pool.base(), first.data());
  first.reset();
  EXPECT_EQ(pool.use_count(), 1u);
  EXPECT_EQ(pool.allocator().name(), "symmetric");
}

TEST_F(SymmetricPoolTest, CapturedStreamsGetNothing) {
  SymmetricPool pool(Device::cuda(0), kMib);
  const Stream stream = Stream::from_pool();
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  EXPECT_THROW(static_cast<void>(pool.allocate(8, stream)), CaptureError);
  driver().destroy_graph(driver().end_capture(stream.native()));
  EXPECT_EQ(pool.offset_of(pool.allocate(8, stream)), 0u);
}

TEST_F(SymmetricPoolTest, BlocksOutliveThePool) {
  const Stream stream = Stream::from_pool();
  FaultDriver faults;
  Buffer buffer;
  Buffer local;
  {
    SymmetricPool first(Device::cuda(0), 4 * kMib);
    SymmetricPool pool(std::move(first));
    buffer = pool.allocate(kMib, stream);
    local = pool.allocate_local(1000, stream);
    EXPECT_EQ(pool.use_count(), 2u);
  }
  fill(buffer, 7, stream);
  EXPECT_TRUE(holds_only(buffer, 7, stream));
  local.reset();
  EXPECT_EQ(faults.calls("unmap"), 0u);
  fill(buffer, 8, stream);
  buffer.reset();
  for (const char* call : {"unmap", "release_chunk", "free_address"}) {
    EXPECT_EQ(faults.calls(call), 1u) << call;
  }
}

TEST_F(SymmetricPoolTest, FailuresChangeNothing) {
  FaultDriver faults;
  for (const char* call : {"reserve_address", "map_chunk", "set_access"}) {
    faults.reset_counts();
    faults.fail_on(call, 1);
    EXPECT_THROW(SymmetricPool(Device::cuda(0), kMib), CudaError) << call;
    const bool had_range = call != std::string("reserve_address");
    EXPECT_EQ(faults.calls("free_address"), had_range ? 1u : 0u) << call;
    EXPECT_EQ(faults.calls("release_chunk"), faults.calls("create_chunk")) << call;
  }
  faults.fail_on("create_chunk", 1, gantry::testing::kOutOfMemory, 2);
  EXPECT_THROW(SymmetricPool(Device::cuda(0), kMib), OutOfMemoryError);
  // The first time it fails the caching allocator gives back what streams are done with.
  { const Buffer cached = allocate(5 * kMib, Stream::current()); }
  Stream::current().synchronize();
  faults.fail_on("create_chunk", 1, gantry::testing::kOutOfMemory);
  SymmetricPool pool(Device::cuda(0), 4 * kMib);
  EXPECT_EQ(reserved(), 0u);

  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  StreamHold hold(a);
  pool.allocate(kMib, a).reset();
  const std::uint64_t sequence = pool.sequence();
  for (const char* call : {"record_event", "wait_event"}) {
    faults.fail_on(call, 1);
    EXPECT_THROW(static_cast<void>(pool.allocate(kMib, b)), CudaError) << call;
    EXPECT_EQ(pool.sequence(), sequence);
    EXPECT_EQ(pool.use_count(), 0u);
  }
  EXPECT_EQ(pool.offset_of(pool.allocate(kMib, b)), 0u);
}

TEST_F(SymmetricPoolTest, ForkedChildrenCannotUseIt) {
  SymmetricPool pool(Device::cuda(0), kMib);
  const Stream stream = Stream::current();
  Buffer buffer = pool.allocate(1000, stream);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 1;
    try {
      static_cast<void>(pool.allocate(8, stream));
    } catch (const ForkError&) {
      failed = 0;
    } catch (...) {
    }
    buffer.reset();
    if (buffer.data() != nullptr) failed |= 2;
    { const SymmetricPool gone(std::move(pool)); }
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(pool.use_count(), 1u);
}

TEST_F(SymmetricPoolTest, AnotherProcessFindsBlocksAtTheirOffsets) {
  auto pool = std::make_unique<SymmetricPool>(Device::cuda(0), 5 * kMib);
  const Stream stream = Stream::current();
  const Buffer before = pool->allocate(3 * kMib, stream);
  const Buffer symmetric = pool->allocate(1000, stream);
  const Buffer local = pool->allocate_local(1000, stream);
  fill(before, 1, stream);
  fill(symmetric, 2, stream);
  fill(local, 3, stream);
  stream.synchronize();
  const int descriptor = pool->export_descriptor();
  ASSERT_GE(descriptor, 0);
  EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(fcntl(descriptor, F_SETFD, 0), 0);  // the helper inherits it
  PipeProcess helper({std::string(GANTRY_TEST_PROGRAM_DIR) + "/symmetric_importer",
                      std::to_string(descriptor), std::to_string(pool->bytes())});
  close(descriptor);
  ASSERT_EQ(helper.read_line(), "mapped");
  const auto read = [&](std::size_t offset) {
    helper.write_line("read " + std::to_string(offset));
    return helper.read_line();
  };
  const std::size_t offset = pool->offset_of(symmetric);
  EXPECT_EQ(read(offset - 1), "1");
  EXPECT_EQ(read(offset), "2");
  EXPECT_EQ(read(offset + 999), "2");
  EXPECT_EQ(read(pool->offset_of(local)), "3");
  helper.write_line("write " + std::to_string(offset + 5) + " 9");
  ASSERT_EQ(helper.read_line(), "written");
  std::uint8_t value = 0;
  driver().copy(&value, pool->data_at(offset + 5), 1, stream.native());
  stream.synchronize();
  EXPECT_EQ(value, 9);
}

TEST_F(SymmetricPoolTest, PeersReachIt) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peers";
  SymmetricPool pool(Device::cuda(0), kMib);
  enable_peer_access(Device::cuda(1), Device::cuda(0));
  const Stream here = Stream::current();
  const Stream there = Stream::from_pool(Device::cuda(1));
  Buffer buffer = pool.allocate(1000, here);
  fill(buffer, 4, here);
  there.wait(here);
  pool.allocator().record_stream(buffer.block(), there);
  StreamHold hold(there);
  fill(buffer, 5, there);
  buffer.reset();
  const Buffer next = pool.allocate(1000, here);
  EXPECT_EQ(pool.offset_of(next), 0u);
  fill(next, 6, here);
  hold.release();
  there.synchronize();
  EXPECT_TRUE(holds_only(next, 6, here));
}

}  // namespace
}  // namespace gantry::memory
