#include "memory/stream_uses.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <gantry/streams/stream.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::StreamHold;

class StreamUsesTest : public gantry::testing::DeviceTest {
 protected:
  std::set<StreamUses*> poll() {
    std::set<StreamUses*> released;
    pending_.poll([&](StreamUses& block) { released.insert(&block); });
    return released;
  }

  PendingFrees pending_;
};

TEST_F(StreamUsesTest, RemembersEachStreamOnce) {
  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  StreamUses block;
  block.add(a.native());
  block.add(b.native());
  block.add(a.native());
  EXPECT_EQ(block.streams.size(), 2u);
}

TEST_F(StreamUsesTest, UnusedBlocksDoNotWait) {
  StreamUses block;
  EXPECT_FALSE(pending_.defer(block));
  EXPECT_TRUE(pending_.empty());
}

TEST_F(StreamUsesTest, WaitsForEveryStream) {
  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  StreamUses block;
  block.add(a.native());
  block.add(b.native());
  StreamHold hold(a);
  EXPECT_TRUE(pending_.defer(block));
  b.synchronize();
  EXPECT_TRUE(poll().empty());
  hold.release();
  a.synchronize();
  EXPECT_EQ(poll(), std::set<StreamUses*>{&block});
  EXPECT_TRUE(pending_.empty());
}

TEST_F(StreamUsesTest, AsksForTheOldestEventOfEachStreamOnly) {
  const Stream stream = Stream::from_pool();
  std::vector<StreamUses> blocks(10);
  StreamHold hold(stream);
  for (StreamUses& block : blocks) {
    block.add(stream.native());
    pending_.defer(block);
  }
  const FaultDriver driver;
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(driver.calls("query_event"), 1u);
  hold.release();
  pending_.waits().synchronize();
  EXPECT_EQ(poll().size(), blocks.size());
}

TEST_F(StreamUsesTest, FailedQueryLosesNothing) {
  const Stream stream = Stream::from_pool();
  StreamUses block;
  block.add(stream.native());
  pending_.defer(block);
  stream.synchronize();
  FaultDriver driver;
  driver.fail_on("query_event", 1);
  EXPECT_THROW(poll(), CudaError);
  EXPECT_EQ(poll().size(), 1u);
}

TEST_F(StreamUsesTest, UnmarkedStreamsAreWaitedForAsAWhole) {
  const Stream stream = Stream::from_pool();
  StreamUses block;
  block.add(stream.native());
  FaultDriver driver;
  driver.fail_on("record_event", 1);
  EXPECT_TRUE(pending_.defer(block));
  EXPECT_EQ(pending_.waits().streams.size(), 1u);
  EXPECT_TRUE(pending_.waits().events.empty());
  pending_.waits().synchronize();
  poll();  // marks it
  pending_.waits().synchronize();
  EXPECT_EQ(block.streams.size(), 0u);
  poll();
  EXPECT_TRUE(pending_.empty());
}

}  // namespace
}  // namespace gantry::memory
