// Runs of copies on streams: the default stream, which another one works for, above all.
#include "streams/batched_copy.hpp"

#include <gtest/gtest.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::FaultDriver;
using testing::StreamHold;

class CopiesTest : public testing::DeviceTest {
 protected:
  static constexpr std::size_t kBytes = 1000;

  void SetUp() override {
    DeviceTest::SetUp();
    from_ = static_cast<std::byte*>(driver().allocate(0, 2 * kBytes));
    to_ = static_cast<std::byte*>(driver().allocate(0, 2 * kBytes));
    unused_ = static_cast<std::byte*>(driver().allocate(0, 1));
    host_ = static_cast<std::uint8_t*>(driver().allocate_pinned(2 * kBytes));
  }
  void TearDown() override {
    driver().deallocate_pinned(host_);
    driver().deallocate(0, unused_);
    driver().deallocate(0, to_);
    driver().deallocate(0, from_);
    DeviceTest::TearDown();
  }

  // Two runs that swap the halves.
  std::vector<CopyRegion> runs() const {
    return {{from_, to_ + kBytes, kBytes}, {from_ + kBytes, to_, kBytes}};
  }

  std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  std::byte* unused_ = nullptr;
  std::uint8_t* host_ = nullptr;
};

TEST_F(CopiesTest, AreOrderedWithTheWorkOfTheirStream) {
  for (const Stream& stream : {Stream::default_stream(), Stream::from_pool()}) {
    StreamHold hold(stream);
    driver().fill(from_, 1, kBytes, stream.native());
    driver().fill(from_ + kBytes, 2, kBytes, stream.native());
    copy_batch(stream, runs());
    driver().fill(from_, 3, 2 * kBytes, stream.native());
    driver().copy(host_, to_, 2 * kBytes, stream.native());
    hold.release();
    stream.synchronize();
    EXPECT_EQ(std::vector(host_, host_ + kBytes), std::vector<std::uint8_t>(kBytes, 2)) << stream;
    EXPECT_EQ(std::vector(host_ + kBytes, host_ + 2 * kBytes), std::vector<std::uint8_t>(kBytes, 1))
        << stream;
  }
}

TEST_F(CopiesTest, OnlyTheDefaultStreamTakesAnotherOne) {
  const Stream pooled = Stream::from_pool();
  FaultDriver counting;
  copy_batch(pooled, runs());
  pooled.synchronize();
  copy_batch(Stream::default_stream(), std::vector{runs().front()});
  EXPECT_EQ(counting.calls("wait_event"), 0u);
  copy_batch(Stream::default_stream(), runs());
  EXPECT_EQ(counting.calls("wait_event"), 2u);
  EXPECT_EQ(counting.calls("copy_batch"), 3u);
  synchronize(Device::cuda(0));
}

TEST_F(CopiesTest, TheDefaultStreamWaitsEvenIfACopyFails) {
  copy_batch(Stream::default_stream(), runs());
  {
    FaultDriver faults;
    faults.fail_on("copy_batch", 1);
    EXPECT_THROW(copy_batch(Stream::default_stream(), runs()), CudaError);
    EXPECT_EQ(faults.calls("wait_event"), 2u);
  }
  copy_batch(Stream::default_stream(), runs());
  synchronize(Device::cuda(0));
}

TEST_F(CopiesTest, CopiesThatTheDefaultStreamCannotWaitForAreOver) {
  copy_batch(Stream::default_stream(), runs());
  {
    FaultDriver faults;
    faults.fail_on("wait_event", 2);
    EXPECT_THROW(copy_batch(Stream::default_stream(), runs()), CudaError);
    EXPECT_EQ(faults.calls("copy_batch"), 1u);
    EXPECT_EQ(faults.calls("synchronize_stream"), 1u);
  }
  synchronize(Device::cuda(0));
}

TEST_F(CopiesTest, NoStreamOfThePoolIsTheOneBesideTheDefaultStream) {
  copy_batch(Stream::default_stream(), runs());
  const StreamHold hold(Stream::default_stream());
  // Work of all others goes on behind a default stream that stands with copies to come.
  copy_batch(Stream::default_stream(), runs());
  for (int i = 0; i < 64; ++i) {
    const Stream other = Stream::from_pool(
        Device::cuda(0), i % 2 == 0 ? StreamPriority::normal : StreamPriority::high);
    driver().fill(unused_, 1, 1, other.native());
    other.synchronize();
  }
}

}  // namespace
}  // namespace gantry
