// Tensor::mdspan() with the type that CUDA's kernels use.
#include <cuda/std/mdspan>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include <gantry/core/error.hpp>
#include <gantry/tensor/accessor.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CcclMdspanTest, TakesEveryLayoutOfCccl) {
  using cuda::std::dextents;
  using cuda::std::dynamic_extent;
  using cuda::std::extents;
  using cuda::std::layout_left;
  using cuda::std::layout_stride;
  using cuda::std::mdspan;
  const Tensor t = arange(12, f32).view({3, 4}), columns = t.t(), sliced = t.slice(1, 1, 4, 2);
  const auto strided = sliced.mdspan<mdspan<float, dextents<std::int64_t, 2>, layout_stride>>();
  const auto right = t.mdspan<mdspan<const float, extents<int, 3, dynamic_extent>>>();
  const auto left = columns.mdspan<mdspan<float, dextents<int, 2>, layout_left>>();
  const auto turned = columns.mdspan<mdspan<float, dextents<int, 2>, layout_stride>>();
  EXPECT_EQ(strided.extent(0), 3);
  EXPECT_EQ(strided.extent(1), 2);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      const float expected = static_cast<float>(4 * i + j);
      EXPECT_EQ(right(i, j), expected);
      EXPECT_EQ(left(j, i), expected);
      EXPECT_EQ(turned(j, i), expected);
    }
    for (int j = 0; j < 2; ++j) EXPECT_EQ(strided(i, j), static_cast<float>(4 * i + 1 + 2 * j));
  }
  strided(2, 1) = -1;
  EXPECT_EQ(t[2][3].item<float>(), -1);
  EXPECT_THAT(([&] { return t.mdspan<mdspan<float, dextents<int, 2>, layout_left>>(); }),
              ThrowsMessage<ShapeError>(HasSubstr("mdspan: expected stride 1 at dim 0")));
}

TEST(CcclMdspanTest, TakesATensorWithoutDims) {
  using None = cuda::std::extents<int>;
  const Tensor t = scalar_tensor(2.5);
  EXPECT_EQ((t.mdspan<cuda::std::mdspan<float, None>>()()), 2.5f);
  EXPECT_EQ((t.mdspan<cuda::std::mdspan<float, None, cuda::std::layout_stride>>()()), 2.5f);
}

}  // namespace
}  // namespace gantry
