#include <gantry/core/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace gantry {
namespace {

using ::testing::MatchesRegex;

TEST(ErrorTest, CarriesTextDeviceAndPlace) {
  const Error error("allocate: expected memory, but got none", "cuda:1");
  EXPECT_STREQ(error.what(), "allocate: expected memory, but got none");
  EXPECT_EQ(error.device(), "cuda:1");
  EXPECT_THAT(std::string(error.where()), MatchesRegex("core/error_test\\.cpp:[0-9]+"));
}

TEST(ErrorTest, DeviceIsAStringAndCopiesDoNotThrow) {
  const Error error("text", "cuda:1");
  EXPECT_EQ("on " + error.device(), "on cuda:1");
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  static_assert(std::is_nothrow_copy_constructible_v<OutOfMemoryError> ||
                !std::is_nothrow_copy_constructible_v<OomReport>);
}

TEST(ErrorTest, NamesInTheTextCannotMoveACursor) {
  const Error error("open: failed to read '\x1b[2J\u202e\u009b':\n\tno\r such file");
  EXPECT_STREQ(error.what(), "open: failed to read '\\x1b[2J\\u202e\\x9b':\n\tno\\x0d such file");
  EXPECT_STREQ(InvalidArgument("größer \x7f").what(), "größer \\x7f");
}

TEST(ErrorTest, DeviceIsEmptyWhereNoneTakesPart) {
  EXPECT_EQ(ShapeError("no device here").device(), "");
}

template <class Thrown>
bool is_caught_as_error() {
  try {
    throw Thrown("text");
  } catch (const Error& error) {
    return std::string_view(error.what()) == "text";
  }
}

TEST(ErrorTest, EveryErrorIsAnErrorAndARuntimeError) {
  EXPECT_TRUE(is_caught_as_error<NcclError>());
  EXPECT_TRUE(is_caught_as_error<CublasError>());
  EXPECT_TRUE(is_caught_as_error<DeviceMismatchError>());
  EXPECT_TRUE(is_caught_as_error<ShapeError>());
  EXPECT_TRUE(is_caught_as_error<DTypeError>());
  EXPECT_TRUE(is_caught_as_error<IndexError>());
  EXPECT_TRUE(is_caught_as_error<InvalidArgument>());
  EXPECT_TRUE(is_caught_as_error<CaptureError>());
  EXPECT_TRUE(is_caught_as_error<NotSupported>());
  EXPECT_TRUE(is_caught_as_error<TimeoutError>());
  EXPECT_TRUE(is_caught_as_error<ForkError>());
  EXPECT_TRUE(is_caught_as_error<PeerLostError>());
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  static_assert(std::is_base_of_v<Error, CudaError>);
  static_assert(std::is_base_of_v<Error, OutOfMemoryError>);
  static_assert(!std::is_base_of_v<ShapeError, IndexError>);
}

TEST(ErrorTest, CudaErrorKeepsNumberAndName) {
  const CudaError error("Failed copying", 700, "cudaErrorIllegalAddress", "cuda:0");
  EXPECT_EQ(error.code(), 700);
  EXPECT_EQ(error.name(), "cudaErrorIllegalAddress");
  EXPECT_EQ(error.device(), "cuda:0");
}

TEST(ErrorTest, OutOfMemoryErrorKeepsTheBreakdown) {
  const OutOfMemoryError error(
      "CUDA out of memory",
      {.requested = 1, .total = 2, .free = 3, .allocated = 4, .reserved = 5, .limit = 6}, "cuda:2");
  EXPECT_EQ(error.breakdown().requested, 1);
  EXPECT_EQ(error.breakdown().total, 2);
  EXPECT_EQ(error.breakdown().free, 3);
  EXPECT_EQ(error.breakdown().allocated, 4);
  EXPECT_EQ(error.breakdown().reserved, 5);
  EXPECT_EQ(error.breakdown().limit, 6);
}

TEST(ErrorTest, PeerLostErrorNamesTheRank) {
  EXPECT_EQ(PeerLostError("rank 3 is gone", 3).rank(), 3);
  EXPECT_EQ(PeerLostError("somebody is gone").rank(), -1);
}

TEST(ErrorTest, CopiesCannotFailAndKeepEverything) {
  static_assert(std::is_nothrow_copy_constructible_v<Error>);
  static_assert(std::is_nothrow_copy_constructible_v<CudaError>);
  const CudaError first("text", 1, "cudaErrorInvalidValue", "cuda:0");
  const CudaError second(first);
  EXPECT_STREQ(second.what(), "text");
  EXPECT_EQ(second.name(), first.name());
  EXPECT_EQ(second.where(), first.where());
}

}  // namespace
}  // namespace gantry
