// Operations that return their result, beside the ones that write it.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

class ReturnedResultsTest : public testing::LocalGroupTest {
 protected:
  // Elements that differ between ranks.
  static Tensor input_of(const Communicator& group, const Shape& shape, DType dtype) {
    const Tensor result = empty(shape, {.dtype = f32, .device = group.device()});
    const Tensor numbers = arange(result.numel(), {.dtype = f32, .device = group.device()});
    return (numbers.reshape(shape) + 100.0 * group.rank()).to(dtype);
  }
  static void expect_same(const Tensor& result, const Tensor& expected) {
    ASSERT_EQ(result.sizes(), expected.sizes());
    EXPECT_EQ(result.dtype(), expected.dtype());
    EXPECT_EQ(result.device(), expected.device());
    EXPECT_TRUE(result.equal(expected));
  }
};

TEST_F(ReturnedResultsTest, TheyAreWhatTheOtherFormsWrite) {
  for (int ranks = 1; ranks <= std::min(device_count(), 4); ++ranks) {
    on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
      for (const DType dtype : {f32, bf16, i64}) {
        for (const Shape& shape : {Shape{2L * ranks, 3}, Shape{12L * ranks}, Shape{0, 5}}) {
          const TensorOptions options{.dtype = dtype, .device = group.device()};
          const Tensor input = input_of(group, shape, dtype);
          Shape large = shape;
          large[0] *= ranks;
          Shape small = shape;
          small[0] /= ranks;
          const Tensor gathered = empty(large, options);
          group.all_gather(gathered, input);
          expect_same(group.all_gather(input), gathered);
          const Tensor reduced = empty(small, options);
          group.reduce_scatter(reduced, input, ReduceOp::max);
          expect_same(group.reduce_scatter(input, ReduceOp::max), reduced);
          const Tensor exchanged = empty(shape, options);
          group.all_to_all(exchanged, input);
          expect_same(group.all_to_all(input), exchanged);
          const int root = ranks - 1;
          const Tensor result = group.gather(input, root);
          if (group.rank() == root) {
            expect_same(result, gathered);
          } else {
            EXPECT_FALSE(result.defined());
          }
        }
      }
      const Tensor numbers = group.all_gather(input_of(group, {}, f32));
      EXPECT_EQ(numbers.sizes(), Shape{ranks});
      EXPECT_EQ(numbers[ranks - 1].item<float>(), 100.0F * static_cast<float>(ranks - 1));
    });
  }
}

TEST_F(ReturnedResultsTest, StridedInputsAndOptionsAreThoseOfTheOtherForms) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Tensor input = input_of(group, {3, 4}, f32).t();
    const Tensor gathered = empty({8, 3}, {.device = group.device()});
    group.all_gather(gathered, input);
    expect_same(group.all_gather(input), gathered);
    const Tensor halves = group.reduce_scatter(input, ReduceOp::sum, {.scale = 0.5});
    const Tensor expected = empty({2, 3}, {.device = group.device()});
    group.reduce_scatter(expected, input, ReduceOp::sum, {.scale = 0.5});
    expect_same(halves, expected);
  });
}

TEST_F(ReturnedResultsTest, BadArgumentsAreErrorsBeforeAnythingStarts) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  const Communicator& mine = group.front();
  const Tensor three = ones({3}, {.device = Device::cuda(0)});
  const Tensor theirs = ones({4}, {.device = Device::cuda(1)});
  expect_throws<ShapeError>([&] { (void)mine.reduce_scatter(three); }, "a multiple of 2 rows");
  expect_throws<ShapeError>([&] { (void)mine.reduce_scatter(three[0]); }, "a multiple of 2 rows");
  expect_throws<ShapeError>([&] { (void)mine.all_to_all(three); }, "all_to_all");
  expect_throws<InvalidArgument>([&] { (void)mine.all_gather(Tensor()); }, "undefined");
  expect_throws<InvalidArgument>([&] { (void)mine.gather(three, 2); }, "gather");
  expect_throws<DeviceMismatchError>([&] { (void)mine.all_gather(theirs); }, "all_gather");
  expect_throws<InvalidArgument>([&] { (void)Communicator().all_gather(three); }, "all_gather");
  // The group is intact.
  testing::rank_threads(2, [&](int rank) {
    const Communicator& own = group[static_cast<std::size_t>(rank)];
    const Tensor sum = own.all_gather(ones({1}, {.device = own.device()}));
    EXPECT_EQ(sum.sum().item<float>(), 2.0F);
  });
}

TEST_F(ReturnedResultsTest, BracesOfTensorsAreReducedInPlace) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor a = full({5}, 1.0, {.device = Device::cuda(0)});
  const Tensor b = full({5}, 2.0, {.device = Device::cuda(1)});
  comm::all_reduce({a, b});
  EXPECT_TRUE(a.equal(full({5}, 3.0, {.device = Device::cuda(0)})));
  comm::all_reduce({a, b}, ReduceOp::max);
  EXPECT_TRUE(b.equal(full({5}, 3.0, {.device = Device::cuda(1)})));
}

}  // namespace
}  // namespace gantry
