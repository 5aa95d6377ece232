#include "tests/support/fault_driver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::FaultDriver;
using ::testing::HasSubstr;

class FaultDriverTest : public testing::DriverTest {};

TEST_F(FaultDriverTest, PassesCallsOnAndCountsThem) {
  Driver* const native = &driver();
  {
    FaultDriver faults;
    EXPECT_EQ(&driver(), &faults);
    void* const data = driver().allocate(0, 100);
    const PointerInfo info = driver().pointer_info(data);
    EXPECT_EQ(info.kind, PointerKind::device);
    EXPECT_TRUE(info.is_open_to_peers);
    driver().deallocate(0, data);
    EXPECT_EQ(faults.calls("allocate"), 1u);
    EXPECT_EQ(faults.calls("pointer_info"), 1u);
    EXPECT_EQ(faults.calls("deallocate"), 1u);
    EXPECT_EQ(faults.calls("copy"), 0u);
    EXPECT_EQ(faults.total_calls(), 3u);
    faults.reset_counts();
    EXPECT_EQ(faults.total_calls(), 0u);
  }
  EXPECT_EQ(&driver(), native);
}

TEST_F(FaultDriverTest, LetsTheNthCallFail) {
  FaultDriver faults;
  const NativeStream stream{.device = 0, .handle = nullptr};
  faults.fail_on("synchronize_stream", 2, testing::kIllegalAddress);
  EXPECT_NO_THROW(driver().synchronize_stream(stream));
  try {
    driver().synchronize_stream(stream);
    FAIL() << "no error";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), 700);
    EXPECT_EQ(error.name(), "cudaErrorIllegalAddress");
    EXPECT_THAT(error.what(), HasSubstr("[synchronize_stream]"));
  }
  EXPECT_NO_THROW(driver().synchronize_stream(stream));
}

TEST_F(FaultDriverTest, CountsFromTheCallThatPlansTheFailure) {
  FaultDriver faults;
  (void)driver().memory_info(0);
  (void)driver().memory_info(0);
  faults.fail_on("memory_info", 1, testing::kUnknown, 2);
  EXPECT_EQ(cuda_error_of([] { (void)driver().memory_info(0); }), 999);
  EXPECT_EQ(cuda_error_of([] { (void)driver().memory_info(0); }), 999);
  EXPECT_EQ(cuda_error_of([] { (void)driver().memory_info(0); }), 0);
}

TEST_F(FaultDriverTest, OutOfMemoryIsAnAnswerNotAnError) {
  FaultDriver faults;
  faults.fail_on("allocate", 1, testing::kOutOfMemory);
  faults.fail_on("create_chunk", 1, testing::kOutOfMemory);
  faults.fail_on("allocate_pinned", 1, testing::kOutOfMemory);
  EXPECT_EQ(driver().allocate(0, 512), nullptr);
  EXPECT_EQ(driver().create_chunk(0, driver().chunk_granularity(0)), NativeChunk::none);
  EXPECT_EQ(driver().allocate_pinned(512), nullptr);
  faults.fail_on("allocate", 1, testing::kUnknown);
  EXPECT_EQ(cuda_error_of([] { (void)driver().allocate(0, 512); }), 999);
}

TEST_F(FaultDriverTest, CallsThatCannotFailAreRefused) {
  FaultDriver faults;
  EXPECT_THROW(faults.fail_on("destroy_event", 1), std::invalid_argument);
  EXPECT_THROW(faults.fail_on("restore_device", 1), std::invalid_argument);
  EXPECT_THROW(faults.fail_on("copy", 0), std::invalid_argument);
}

}  // namespace
}  // namespace gantry
