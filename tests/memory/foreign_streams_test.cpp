// Blocks of streams that gantry does not own, which may be destroyed as soon as the blocks are
// freed.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/event.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::ForeignStream;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

class ForeignStreamsTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (IsSkipped()) return;
    static_cast<void>(Stream::from_pool());  // made before the driver gives a handle out again
    limit_to(20 * kMib);
  }
  static void record(const Buffer& buffer, const Stream& user) {
    allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  }
  // All the memory there is, without waiting for work that has nothing to do with it.
  static void expect_all_can_be_had(const Stream& stream) {
    FaultDriver driver;
    const Buffer all = allocate(stream, 20 * kMib);
    EXPECT_EQ(driver.calls("synchronize_device"), 0u);
  }
};

TEST_F(ForeignStreamsTest, EndAfterTheFree) {
  const Stream other = Stream::from_pool();
  for (const std::size_t bytes : {std::size_t{1000}, 18 * kMib}) {
    ForeignStream foreign;
    Buffer buffer = allocate(foreign.stream(), bytes);
    buffer.reset();
    foreign.destroy();
    expect_all_can_be_had(other);
  }
}

TEST_F(ForeignStreamsTest, EndWhileAnotherStreamUsesTheBlock) {
  const Stream other = Stream::from_pool();
  const Stream user = Stream::from_pool();
  ForeignStream foreign;
  Buffer buffer = allocate(foreign.stream(), 18 * kMib);
  record(buffer, user);
  StreamHold hold(user);
  buffer.reset();
  foreign.destroy();
  EXPECT_EQ(stats().pending_bytes, static_cast<std::int64_t>(18 * kMib));
  hold.release();
  user.synchronize();
  expect_all_can_be_had(other);
}

TEST_F(ForeignStreamsTest, EndWhileTheBlockIsInUseElsewhere) {
  const Stream other = Stream::from_pool();
  const Stream user = Stream::from_pool();
  ForeignStream foreign;
  Buffer buffer = allocate(foreign.stream(), 18 * kMib);
  record(buffer, user);
  std::optional<ImportedBlock> import = import_ipc(export_ipc(buffer.block()), Device::cuda(0));
  Stream::current().synchronize();
  buffer.reset();
  foreign.destroy();
  EXPECT_EQ(stats().limbo_bytes, static_cast<std::int64_t>(18 * kMib));
  import.reset();
  ipc_collect();
  EXPECT_EQ(stats().limbo_bytes, 0);
  expect_all_can_be_had(other);
}

// What the stream waits for after the free does not come after the sequence number of the free.
TEST_F(ForeignStreamsTest, AreNotTakenForLaterThanTheFree) {
  const Stream other = Stream::from_pool();
  const Stream user = Stream::from_pool();
  const ForeignStream foreign;
  const Stream own = foreign.stream();
  Buffer buffer = allocate(own, 5 * kMib);
  void* data = buffer.data();
  record(buffer, user);
  StreamHold hold(user);
  buffer.reset();
  other.wait(own);
  own.wait(user);
  static_cast<void>(allocate(own, 8 * kMib));  // looks at what is over by now
  EXPECT_NE(allocate(other, 5 * kMib).data(), data) << "reused while a stream works with it";
  hold.release();
  own.synchronize();
  user.synchronize();
}

}  // namespace
}  // namespace gantry::memory
