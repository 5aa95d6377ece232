#include <gantry/tensor/indexing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

class IndexingTest : public testing::PlacedTest {
 protected:
  // [[0, 1, 2], [3, 4, 5]]
  Tensor matrix() const { return arange(6, options()).view({2, 3}); }
};

TEST_P(IndexingTest, IndexSelectPicksSlices) {
  for (const DType dtype : {i32, i64}) {
    const Tensor index = tensor({2, 0, 2}, options(dtype));
    EXPECT_THAT(matrix().index_select(1, index).to_vector<float>(), ElementsAre(2, 0, 2, 5, 3, 5));
    EXPECT_THAT(matrix().t().index_select(0, index).to_vector<float>(),
                ElementsAre(2, 5, 0, 3, 2, 5));
  }
  const Tensor none = zeros({0}, options(i64));
  EXPECT_EQ(matrix().index_select(0, none).sizes(), Shape({0, 3}));
  EXPECT_EQ(matrix().index_select(-1, scalar_tensor(1, options(i64))).sizes(), Shape({2, 1}));
  EXPECT_EQ(scalar_tensor(7, options()).index_select(0, tensor({0}, options(i64))).sizes(),
            Shape{});
}

TEST_P(IndexingTest, GatherTakesOneElementPerIndex) {
  const Tensor index = tensor({{2, 2}, {0, 1}}, options(i64));
  EXPECT_THAT(matrix().gather(1, index).to_vector<float>(), ElementsAre(2, 2, 3, 4));
  EXPECT_THAT(matrix().gather(0, tensor({{1, 0, 1}}, options(i64))).to_vector<float>(),
              ElementsAre(3, 1, 5));
}

TEST_P(IndexingTest, ScatterWritesOneElementPerIndex) {
  const Tensor index = tensor({{2, 0}, {1, 1}}, options(i64));
  const Tensor source = tensor({{10.0f, 20.0f}, {30.0f, 40.0f}}, options());
  Tensor t = matrix();
  const Tensor result = t.scatter(1, index, source);
  EXPECT_THAT(result.to_vector<float>(), ElementsAre(20, 1, 10, 3, 40, 5));  // the last one wins
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  t.scatter_(1, index, 9);
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(9, 1, 9, 3, 9, 5));
  t.scatter_add_(1, index, source);
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(29, 1, 19, 3, 79, 5));
  Tensor columns = matrix().t();
  columns.scatter_(0, index.t(), 7);
  EXPECT_THAT(columns.t().to_vector<float>(), ElementsAre(7, 1, 7, 3, 7, 5));
}

TEST_P(IndexingTest, RejectsShapesThatDoNotFit) {
  const Tensor index = zeros({2, 2}, options(i64));
  Tensor t = matrix();
  EXPECT_THAT(message_of<DTypeError>([&] {
                (void)t.gather(0, zeros({2, 2}, options()));
              }),
              HasSubstr("gather(): Expected dtype int32 or int64 for index, but got Float"));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.index_select(0, index); }),
              HasSubstr("index_select(): Index is supposed to be a vector"));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.gather(0, index[0]); }),
              HasSubstr("gather(): Index tensor must have the same number of dimensions as input "
                        "tensor, but got 1 and 2"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                (void)t.gather(1, zeros({3, 3}, options(i64)));
              }),
              HasSubstr("gather(): Expected index [3, 3] to be no larger than self [2, 3] apart "
                        "from dimension 1"));
  EXPECT_THAT(
      message_of<ShapeError>([&] {
        t.scatter_(1, index, zeros({1, 2}, options()));
      }),
      HasSubstr("scatter(): Expected index [2, 2] to be no larger than self [2, 3] apart from "
                "dimension 1 and to be no larger size than src [1, 2]"));
  EXPECT_THAT(message_of<DTypeError>([&] {
                t.scatter_(1, index, zeros({2, 2}, options(f64)));
              }),
              HasSubstr("scatter(): Expected self.dtype to be equal to src.dtype, but got Float "
                        "and Double"));
  EXPECT_THAT(message_of<IndexError>([&] { (void)t.gather(2, index); }),
              HasSubstr("Dimension out of range"));
  Tensor expanded = zeros({1, 3}, options()).expand({2, 3});
  EXPECT_THAT(message_of<InvalidArgument>([&] { expanded.scatter_(1, index, 1); }),
              HasSubstr("more than one element of the written-to tensor refers to a single memory "
                        "location"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { t.scatter_add_(1, index, t); }),
              HasSubstr("some elements of the input tensor and the written-to tensor refer to a "
                        "single memory location"));
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(IndexingTest, AnIndexOutOfRangeThrowsImmediatelyOrAtTheNextSynchronization) {
  const Tensor t = matrix();
  const auto run = [&] {
    const Tensor result = t.index_select(1, tensor({0, 5}, options(i64)));
    (void)result.to_vector<float>();
  };
  EXPECT_THAT(message_of<IndexError>(run),
              HasSubstr("index 5 is out of bounds for dimension 1 with size 3"));
  EXPECT_EQ(t.sum().item<float>(), 15);
}

TEST_P(IndexingTest, NegativeIndicesAreOutOfRangeAsInPyTorch) {
  const Tensor t = matrix();
  const std::string where = GetParam() ? " on " + t.device().str() + ": " : ": ";
  const std::string text = "index -1 is out of bounds for dimension 1 with size 3";
  const Tensor index = tensor({{-1}, {0}}, options(i64));
  EXPECT_EQ(message_of<IndexError>(
                [&] { (void)t.index_select(1, tensor({-1}, options(i64))).to_vector<float>(); }),
            "index_select" + where + text);
  EXPECT_EQ(message_of<IndexError>([&] { (void)t.gather(1, index).to_vector<float>(); }),
            "gather" + where + text);
  Tensor target = zeros({2, 3}, options());
  EXPECT_EQ(message_of<IndexError>([&] { (void)target.scatter_(1, index, 1).to_vector<float>(); }),
            "scatter" + where + text);
  EXPECT_EQ(message_of<IndexError>([&] {
              (void)target.scatter_add_(1, index, ones({2, 1}, options())).to_vector<float>();
            }),
            "scatter_add" + where + text);
}

INSTANTIATE_TEST_SUITE_P(Places, IndexingTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Device") : std::string("Cpu");
});

TEST(IndexingDeviceTest, IndicesAreOnTheTensorsDevice) {
  GANTRY_REQUIRE_DEVICES(1);
  const Tensor t = zeros({2, 3}, {.device = Device::cuda(0)});
  EXPECT_THAT(message_of<DeviceMismatchError>([&] {
                (void)t.gather(0, zeros({1, 3}, {.dtype = i64}));
              }),
              HasSubstr("Expected all tensors to be on the same device"));
}

}  // namespace
}  // namespace gantry
