// Every exception type of the library through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <stdexcept>
#include <type_traits>

namespace {

using namespace gantry;
using ::testing::HasSubstr;

template <class E>
class ApiErrorTest : public ::testing::Test {};

using ErrorTypes =
    ::testing::Types<CudaError, NcclError, CublasError, OutOfMemoryError, DeviceMismatchError,
                     ShapeError, DTypeError, IndexError, InvalidArgument, CaptureError,
                     NotSupported, PeerLostError, TimeoutError, ForkError>;

template <class E>
E make() {
  if constexpr (std::is_same_v<E, CudaError>) {
    return E("it failed", 1, "cudaErrorInvalidValue", "cuda:1");
  } else if constexpr (std::is_same_v<E, OutOfMemoryError>) {
    return E("it failed", MemoryBreakdown{}, "cuda:1");
  } else if constexpr (std::is_same_v<E, PeerLostError>) {
    return E("it failed", 3, "cuda:1");
  } else {
    return E("it failed", "cuda:1");
  }
}

TYPED_TEST_SUITE(ApiErrorTest, ErrorTypes);

TYPED_TEST(ApiErrorTest, IsAnErrorWithDeviceAndPlace) {
  static_assert(std::is_base_of_v<std::runtime_error, TypeParam>);
  try {
    throw make<TypeParam>();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("it failed"));
    EXPECT_EQ(error.device(), "cuda:1");
    EXPECT_THAT(std::string(error.where()), HasSubstr("api_errors_test.cpp:"));
  }
}

TEST(ApiErrorPayloadTest, CarriesNumbers) {
  EXPECT_EQ(make<CudaError>().code(), 1);
  EXPECT_EQ(make<CudaError>().name(), "cudaErrorInvalidValue");
  EXPECT_EQ(make<PeerLostError>().rank(), 3);
}

}  // namespace
