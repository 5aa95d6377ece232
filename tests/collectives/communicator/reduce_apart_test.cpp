// Reductions into another tensor: the checks of both. Their results are in CollectiveSuite.
#include <gtest/gtest.h>

#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using testing::expect_throws;

class ReduceApart : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_DEVICES(1);
    group_ = Communicator::local({Device::cuda(0)}).front();
  }
  static Tensor on_device(std::int64_t count, DType dtype = DType::f32) {
    return full({count}, 3, {.dtype = dtype, .device = Device::cuda(0)});
  }

  Communicator group_;
};

TEST_F(ReduceApart, RefusesTensorsThatDoNotFit) {
  const Tensor input = on_device(4);
  const auto all_reduce = [&](const Tensor& output) {
    return [&, output] { (void)group_.all_reduce(output, input); };
  };
  const auto reduce = [&](const Tensor& output) {
    return [&, output] { (void)group_.reduce(output, input, 0); };
  };
  expect_throws<ShapeError>(all_reduce(on_device(5)),
                            "expected 'output' of shape [4], but got [5]");
  expect_throws<ShapeError>(reduce(on_device(5)), "expected 'output' of shape [4], but got [5]");
  expect_throws<DTypeError>(all_reduce(on_device(4, DType::i32)), "dtype f32, but got i32");
  expect_throws<DTypeError>(reduce(on_device(4, DType::i32)), "dtype f32, but got i32");
  expect_throws<InvalidArgument>(all_reduce(Tensor()), "'output'");
  expect_throws<InvalidArgument>(reduce(Tensor()), "'output'");
  expect_throws<DeviceMismatchError>(all_reduce(zeros({4})), "cpu");
  expect_throws<InvalidArgument>(all_reduce(on_device(1).expand({4})), "several share one");
  expect_throws<InvalidArgument>([&] { (void)group_.reduce(on_device(4), input, 1); }, "root");
  expect_throws<DTypeError>(
      [&] {
        (void)group_.all_reduce(on_device(4, DType::i32), on_device(4, DType::i32), ReduceOp::avg);
      },
      "avg");
  EXPECT_EQ(input.to_vector<float>(), std::vector<float>(4, 3));
}

TEST_F(ReduceApart, TakesTensorsThatOverlap) {
  const Tensor memory = arange(0, 6, 1, {.dtype = DType::f32, .device = Device::cuda(0)});
  const Tensor input = memory.narrow(0, 0, 4);
  (void)group_.all_reduce(memory.narrow(0, 2, 4), input);
  EXPECT_EQ(memory.to_vector<float>(), (std::vector<float>{0, 1, 0, 1, 2, 3}));
  (void)group_.all_reduce(input, input);
  EXPECT_EQ(input.to_vector<float>(), (std::vector<float>{0, 1, 0, 1}));
}

}  // namespace
}  // namespace gantry
