// Every exception type of the library through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <stdexcept>
#include <type_traits>

#include "tests/support/device_fixture.hpp"

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
    return E("it failed", OomReport{}, "cuda:1");
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

TEST(ApiErrorDeviceTest, ComparesWithDevicesInAHandler) {
  int handled = 0;
  try {
    throw InvalidArgument("no device takes part");
  } catch (const Error& error) {
    if (error.device() == Device::cuda(1)) ADD_FAILURE() << "the error names no device";
    if (error.device() != Device::cuda(1)) ++handled;
  }
  try {
    throw InvalidArgument("it failed", "cuda:1");
  } catch (const Error& error) {
    if (error.device() == Device::cuda(1)) ++handled;
    EXPECT_EQ("on " + error.device(), "on cuda:1");
  }
  EXPECT_EQ(handled, 2);
}

class ApiErrorOfTensorTest : public gantry::testing::DeviceTest {};

TEST_F(ApiErrorOfTensorTest, NamesTheTensorsDevice) {
  const Tensor t = zeros({2, 3}, Device::cuda(0));
  const auto device_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.device();
    }
    return "no error";
  };
  EXPECT_EQ(device_of([&] { (void)t.mm(t); }), "cuda:0");
  EXPECT_EQ(device_of([&] { (void)(t + zeros({4}, Device::cuda(0))); }), "cuda:0");
  EXPECT_EQ(device_of([&] { t.clone().copy_(zeros({4})); }), "cuda:0");
  EXPECT_EQ(device_of([&] { (void)t.expand({4, 4}); }), "cuda:0");
  EXPECT_EQ(device_of([&] { (void)zeros({1}, Device::cuda(99)); }), "cuda:99");
}

}  // namespace
