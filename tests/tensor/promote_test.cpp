#include <gantry/tensor/promote.hpp>

#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry {
namespace {

TEST(ResultTypeTest, LowerPrioritiesCountByCategoryOnly) {
  const auto dims = [](DType dtype) { return zeros({2}, {.dtype = dtype}); };
  const auto zero = [](DType dtype) { return zeros({}, {.dtype = dtype}); };
  EXPECT_EQ(result_type(dims(i32), 2), i32);
  EXPECT_EQ(result_type(dims(i32), 2.5), f32);
  EXPECT_EQ(result_type(dims(u8), true), u8);
  EXPECT_EQ(result_type(dims(bool_), 1), i64);
  EXPECT_EQ(result_type(dims(bool_), 1.0), f32);
  EXPECT_EQ(result_type(dims(f16), 1.0), f16);
  EXPECT_EQ(result_type(dims(i8), zero(i64)), i8);
  EXPECT_EQ(result_type(zero(f64), dims(f16)), f16);
  EXPECT_EQ(result_type(dims(i32), zero(f16)), f16);
  EXPECT_EQ(result_type(dims(i8), dims(u8)), i16);
  EXPECT_EQ(result_type(zero(i8), zero(u8)), i16);
  EXPECT_EQ(result_type(zero(f64), 1.5), f64);
  EXPECT_EQ(result_type(zero(i16), 1.5), f32);
  EXPECT_EQ(result_type(1, 2.5), f32);
  EXPECT_EQ(result_type(true, 2), i64);
}

TEST(ResultTypeTest, AcceptsAnyNumberOfOperands) {
  const Tensor a = zeros({2}, {.dtype = i8});
  const Tensor b = zeros({}, {.dtype = i64});
  const std::vector<Operand> operands{a, b, 2.5};
  EXPECT_EQ(result_type(operands), f32);
  EXPECT_THROW(static_cast<void>(result_type(std::span<const Operand>{})), InvalidArgument);
}

}  // namespace
}  // namespace gantry
