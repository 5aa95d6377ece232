#include <gantry/tensor/rearrangements.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class RearrangementsTest : public testing::PlacedTest {
 protected:
  Tensor counted(const Shape& sizes) const { return on(arange(sizes.product())).view(sizes); }
};

GANTRY_TEST_PLACES(RearrangementsTest);

TEST_P(RearrangementsTest, AtLeastSomeDims) {
  const Tensor scalar = on(tensor(3));
  const Tensor vector = counted({4});
  const Tensor matrix = counted({2, 3});
  EXPECT_EQ(atleast_1d(scalar).sizes(), (Shape{1}));
  EXPECT_EQ(atleast_2d(scalar).sizes(), (Shape{1, 1}));
  EXPECT_EQ(atleast_3d(scalar).sizes(), (Shape{1, 1, 1}));
  EXPECT_EQ(atleast_1d(vector).sizes(), (Shape{4}));
  EXPECT_EQ(atleast_2d(vector).sizes(), (Shape{1, 4}));
  EXPECT_EQ(atleast_3d(vector).sizes(), (Shape{1, 4, 1}));
  EXPECT_EQ(atleast_3d(matrix).sizes(), (Shape{2, 3, 1}));
  EXPECT_TRUE(atleast_3d(matrix).is_view_of(matrix));
  EXPECT_EQ(atleast_3d(counted({1, 2, 3, 4})).dim(), 4);
  EXPECT_ERROR(atleast_2d(Tensor()), InvalidArgument, "atleast_2d");
}

TEST_P(RearrangementsTest, JoinAlongTheThirdAndSecondDim) {
  const Tensor a = counted({3});
  const Tensor joined = dstack({a, a * 10});
  EXPECT_EQ(joined.sizes(), (Shape{1, 3, 2}));
  EXPECT_THAT(joined.view({6}).to_vector<int>(), ElementsAre(0, 0, 1, 10, 2, 20));
  EXPECT_EQ(dstack({counted({2, 3, 4}), counted({2, 3, 1})}).sizes(), (Shape{2, 3, 5}));
  const Tensor columns = column_stack({a, a * 10, counted({3, 2})});
  EXPECT_EQ(columns.sizes(), (Shape{3, 4}));
  EXPECT_THAT(columns[1].to_vector<int>(), ElementsAre(1, 10, 2, 3));
  EXPECT_EQ(column_stack({on(tensor(1)), on(tensor(2.5))}).dtype(), f32);
  EXPECT_ERROR(dstack(std::vector<Tensor>{}), InvalidArgument, "dstack: expected a non-empty");
  EXPECT_ERROR(dstack({a, counted({4})}), ShapeError, "dstack: Sizes of tensors must match");
  EXPECT_ERROR(column_stack({a, counted({4})}), ShapeError, "column_stack: Sizes");
}

TEST_P(RearrangementsTest, BlocksOnTheDiagonal) {
  const Tensor blocks = block_diag({counted({2, 2}), on(tensor(7)), on(tensor({8, 9}))});
  EXPECT_EQ(blocks.sizes(), (Shape{4, 5}));
  EXPECT_THAT(blocks.view({20}).to_vector<int>(), ElementsAre(0, 1, 0, 0, 0,  //
                                                              2, 3, 0, 0, 0,  //
                                                              0, 0, 7, 0, 0,  //
                                                              0, 0, 0, 8, 9));
  EXPECT_EQ(block_diag({on(ones({1, 2}, f16)), on(ones({1}, bf16))}).dtype(), f32);
  EXPECT_EQ(block_diag({on(ones({0, 2})), on(ones({1, 1}))}).sizes(), (Shape{1, 3}));
  EXPECT_ERROR(block_diag({counted({1, 1, 1})}), ShapeError, "block_diag: Input tensors must have");
}

TEST_P(RearrangementsTest, GridsHoldTheCoordinates) {
  const Tensor x = counted({2});
  const Tensor y = counted({3}) * 10;
  const std::vector<Tensor> grids = meshgrid({x, y, on(tensor(5))});
  ASSERT_EQ(grids.size(), 3u);
  for (const Tensor& grid : grids) EXPECT_EQ(grid.sizes(), (Shape{2, 3, 1}));
  EXPECT_THAT(grids[0].reshape({6}).to_vector<int>(), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(grids[1].reshape({6}).to_vector<int>(), ElementsAre(0, 10, 20, 0, 10, 20));
  EXPECT_TRUE(grids[0].is_view_of(x));
  const std::vector<Tensor> swapped = meshgrid({x, y}, "xy");
  EXPECT_EQ(swapped[0].sizes(), (Shape{3, 2}));
  EXPECT_THAT(swapped[0].reshape({6}).to_vector<int>(), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_EQ(meshgrid({x}, "xy")[0].sizes(), (Shape{2}));
  EXPECT_ERROR(meshgrid({}), InvalidArgument, "meshgrid expects a non-empty TensorList");
  EXPECT_ERROR(meshgrid({x}, "yx"), InvalidArgument, "indexing must be one of");
  EXPECT_ERROR(meshgrid({x, x.to(f32)}), DTypeError, "meshgrid: expected all tensors");
  EXPECT_ERROR(meshgrid({counted({2, 2})}), ShapeError, "meshgrid: Expected 0D or 1D");
}

TEST_P(RearrangementsTest, QuarterTurns) {
  const Tensor m = counted({2, 3});
  EXPECT_THAT(rot90(m).reshape({6}).to_vector<int>(), ElementsAre(2, 5, 1, 4, 0, 3));
  EXPECT_EQ(rot90(m).sizes(), (Shape{3, 2}));
  const Tensor cube = counted({2, 3, 4});
  for (const Axes& dims : {Axes{0, 1}, Axes{2, 0}, Axes{-1, -2}}) {
    const Tensor once = rot90(cube, 1, dims);
    const Tensor thrice = rot90(rot90(once, 1, dims), 1, dims);
    EXPECT_TRUE(rot90(cube, 2, dims).equal(rot90(once, 1, dims)));
    EXPECT_TRUE(rot90(cube, 3, dims).equal(thrice));
    EXPECT_TRUE(rot90(cube, -1, dims).equal(thrice));
    EXPECT_TRUE(rot90(cube, -8, dims).equal(cube));
    EXPECT_TRUE(rot90(once, -1, dims).equal(cube));
  }
  EXPECT_FALSE(rot90(m, 0).is_view_of(m));
  EXPECT_TRUE(fliplr(m).equal(m.flip(1)));
  EXPECT_TRUE(flipud(m).equal(m.flip(0)));
  EXPECT_ERROR(rot90(m, 1, {0}), InvalidArgument, "rot90: expected total rotation dims == 2");
  EXPECT_ERROR(rot90(m, 1, {0, -2}), InvalidArgument, "rot90: dim 0 appears multiple times");
  EXPECT_ERROR(rot90(m[0]), ShapeError, "rot90: expected total dims >= 2");
  EXPECT_ERROR(rot90(m, 1, {0, 2}), IndexError, "rot90: Dimension out of range");
  EXPECT_ERROR(fliplr(m[0]), ShapeError, "fliplr: Input must be >= 2-d.");
  EXPECT_ERROR(flipud(on(tensor(1))), ShapeError, "flipud: Input must be >= 1-d.");
}

}  // namespace
}  // namespace gantry
