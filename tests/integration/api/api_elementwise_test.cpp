// Elementwise operations, operators, broadcasting and promotion through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <gantry/gantry.hpp>
#include <limits>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiElementwiseTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    a_ = tensor({1.0, -2.0, 4.0}, {.device = "cuda:0"});
    b_ = tensor({2.0, 2.0, 0.5}, {.device = "cuda:0"});
    n_ = tensor({7, -7, 6}, {.device = "cuda:0"});
  }
  Tensor a_;
  Tensor b_;
  Tensor n_;
};

TEST_F(ApiElementwiseTest, Arithmetic) {
  EXPECT_THAT((a_ + b_).to_vector<float>(), ElementsAre(3, 0, 4.5f));
  EXPECT_THAT((a_ - b_).to_vector<float>(), ElementsAre(-1, -4, 3.5f));
  EXPECT_THAT((a_ * b_).to_vector<float>(), ElementsAre(2, -4, 2));
  EXPECT_THAT((a_ / b_).to_vector<float>(), ElementsAre(0.5f, -1, 8));
  EXPECT_THAT((-a_).to_vector<float>(), ElementsAre(-1, 2, -4));
  EXPECT_THAT(add(a_, b_, 2).to_vector<float>(), ElementsAre(5, 2, 5));
  EXPECT_THAT(a_.sub(b_, 0.5).to_vector<float>(), ElementsAre(0, -3, 3.75f));
  EXPECT_THAT(n_.div(2, RoundingMode::floor).to_vector<int>(), ElementsAre(3, -4, 3));
  EXPECT_THAT(div(n_, 2, RoundingMode::trunc).to_vector<int>(), ElementsAre(3, -3, 3));
  EXPECT_THAT(n_.floor_divide(2).to_vector<int>(), ElementsAre(3, -4, 3));
  EXPECT_THAT(remainder(n_, 4).to_vector<int>(), ElementsAre(3, 1, 2));
  EXPECT_THAT((n_ % 4).to_vector<int>(), ElementsAre(3, 1, 2));
  EXPECT_THAT(n_.fmod(4).to_vector<int>(), ElementsAre(3, -3, 2));
  EXPECT_THAT(a_.pow(2).to_vector<float>(), ElementsAre(1, 4, 16));
  EXPECT_THAT(pow(2, a_).to_vector<float>(), ElementsAre(2, 0.25f, 16));
}

TEST_F(ApiElementwiseTest, ScalarsOnBothSides) {
  EXPECT_THAT((a_ + 1).to_vector<float>(), ElementsAre(2, -1, 5));
  EXPECT_THAT((1 + a_).to_vector<float>(), ElementsAre(2, -1, 5));
  EXPECT_THAT((a_ - 1.5f).to_vector<float>(), ElementsAre(-0.5f, -3.5f, 2.5f));
  EXPECT_THAT((1 - a_).to_vector<float>(), ElementsAre(0, 3, -3));
  EXPECT_THAT((2.0 * a_).to_vector<float>(), ElementsAre(2, -4, 8));
  EXPECT_THAT((a_ / 2).to_vector<float>(), ElementsAre(0.5f, -1, 2));
  EXPECT_THAT((4 / a_).to_vector<float>(), ElementsAre(4, -2, 1));
  EXPECT_THAT((n_ & 3).to_vector<int>(), ElementsAre(3, 1, 2));
  EXPECT_THAT((8 | n_).to_vector<int>(), ElementsAre(15, -7, 14));
  EXPECT_THAT((n_ ^ n_).to_vector<int>(), ElementsAre(0, 0, 0));
  EXPECT_THAT((~n_).to_vector<int>(), ElementsAre(-8, 6, -7));
}

TEST_F(ApiElementwiseTest, Comparisons) {
  EXPECT_EQ((a_ < b_).dtype(), bool_);
  EXPECT_THAT((a_ < b_).to_vector<bool>(), ElementsAre(true, true, false));
  EXPECT_THAT((a_ <= 1).to_vector<bool>(), ElementsAre(true, true, false));
  EXPECT_THAT((1 < a_).to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT((a_ >= b_).to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT((a_ == 4).to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT((a_ != a_).to_vector<bool>(), ElementsAre(false, false, false));
  EXPECT_THAT(a_.eq(b_).to_vector<bool>(), ElementsAre(false, false, false));
  EXPECT_THAT(a_.ne(1).to_vector<bool>(), ElementsAre(false, true, true));
  EXPECT_THAT(lt(a_, 0).to_vector<bool>(), ElementsAre(false, true, false));
  EXPECT_THAT(le(a_, b_).to_vector<bool>(), ElementsAre(true, true, false));
  EXPECT_THAT(a_.gt(b_).to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT(ge(4, a_).to_vector<bool>(), ElementsAre(true, true, true));
  Tensor in_place = a_.clone();
  EXPECT_THAT(in_place.gt_(0).to_vector<float>(), ElementsAre(1, 0, 1));
}

TEST_F(ApiElementwiseTest, InPlaceFormsReturnTheTensor) {
  Tensor t = a_.clone();
  EXPECT_EQ(&t.add_(1), &t);
  t.mul_(2).sub_(b_).div_(2);
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(1, -2, 4.75f));
  t += 1;
  t -= b_;
  t *= 2.0;
  t /= 4;
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(0, -1.5f, 2.625f));
  t.abs_().sqrt_().square_().neg_();
  EXPECT_NEAR(t.sum().item<float>(), -4.125f, 1e-5f);
  t.zero_().add_(b_, 3).clamp_(2, 5);
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(5, 5, 2));
  Tensor mask = n_ > 0;
  mask &= n_ > 6;
  mask |= n_ == 6;
  mask ^= true;
  EXPECT_THAT(mask.to_vector<bool>(), ElementsAre(false, true, false));
}

TEST_F(ApiElementwiseTest, UnaryFunctionsFollowTheScalarOnes) {
  const std::vector<double> x{0.25, 0.5, 0.75};
  const Tensor t = tensor(x, {.dtype = f64, .device = "cuda:0"});
  const auto check = [&x](const Tensor& got, auto oracle) {
    const std::vector<double> values = got.to_vector<double>();
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(values[i], oracle(x[i]), 1e-12);
  };
  check(exp(t), [](double v) { return std::exp(v); });
  check(t.expm1(), [](double v) { return std::expm1(v); });
  check(log(t), [](double v) { return std::log(v); });
  check(t.log2(), [](double v) { return std::log2(v); });
  check(t.log10(), [](double v) { return std::log10(v); });
  check(t.log1p(), [](double v) { return std::log1p(v); });
  check(sqrt(t), [](double v) { return std::sqrt(v); });
  check(t.rsqrt(), [](double v) { return 1 / std::sqrt(v); });
  check(t.reciprocal(), [](double v) { return 1 / v; });
  check(sin(t), [](double v) { return std::sin(v); });
  check(t.cos(), [](double v) { return std::cos(v); });
  check(t.tan(), [](double v) { return std::tan(v); });
  check(t.asin(), [](double v) { return std::asin(v); });
  check(t.acos(), [](double v) { return std::acos(v); });
  check(t.atan(), [](double v) { return std::atan(v); });
  check(t.sinh(), [](double v) { return std::sinh(v); });
  check(t.cosh(), [](double v) { return std::cosh(v); });
  check(tanh(t), [](double v) { return std::tanh(v); });
  check(t.sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  check(t.relu(), [](double v) { return v; });
  check(t.gelu(), [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  check(t.silu(), [](double v) { return v / (1 + std::exp(-v)); });
  check(t.erf(), [](double v) { return std::erf(v); });
  check(atan2(t, 2), [](double v) { return std::atan2(v, 2); });
}

TEST_F(ApiElementwiseTest, RoundingSignsAndTests) {
  const Tensor t = tensor({-1.5, 0.5, 2.5}, {.device = "cuda:0"});
  EXPECT_THAT(t.floor().to_vector<float>(), ElementsAre(-2, 0, 2));
  EXPECT_THAT(t.ceil().to_vector<float>(), ElementsAre(-1, 1, 3));
  EXPECT_THAT(t.round().to_vector<float>(), ElementsAre(-2, 0, 2));
  EXPECT_THAT(t.trunc().to_vector<float>(), ElementsAre(-1, 0, 2));
  EXPECT_THAT(t.frac().to_vector<float>(), ElementsAre(-0.5f, 0.5f, 0.5f));
  EXPECT_THAT(t.sign().to_vector<float>(), ElementsAre(-1, 1, 1));
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor odd = tensor({NAN, inf, 1.0f}, {.device = "cuda:0"});
  EXPECT_THAT(isnan(odd).to_vector<bool>(), ElementsAre(true, false, false));
  EXPECT_THAT(odd.isinf().to_vector<bool>(), ElementsAre(false, true, false));
  EXPECT_THAT(odd.isfinite().to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_THAT(odd.nan_to_num(5, 6).to_vector<float>(), ElementsAre(5, 6, 1));
}

TEST_F(ApiElementwiseTest, LogicBitsAndShifts) {
  const Tensor t = tensor({1, 0, 6}, {.device = "cuda:0"});
  EXPECT_THAT(t.logical_and(n_).to_vector<bool>(), ElementsAre(true, false, true));
  EXPECT_THAT(logical_or(t, 0).to_vector<bool>(), ElementsAre(true, false, true));
  EXPECT_THAT(t.logical_xor(1).to_vector<bool>(), ElementsAre(false, true, false));
  EXPECT_THAT(t.logical_not().to_vector<bool>(), ElementsAre(false, true, false));
  EXPECT_THAT(t.bitwise_left_shift(2).to_vector<int>(), ElementsAre(4, 0, 24));
  EXPECT_THAT(bitwise_right_shift(t, 1).to_vector<int>(), ElementsAre(0, 0, 3));
}

TEST_F(ApiElementwiseTest, ThreeOperands) {
  EXPECT_THAT(a_.clamp(0, 2).to_vector<float>(), ElementsAre(1, 0, 2));
  EXPECT_THAT(clamp(a_, {}, 2).to_vector<float>(), ElementsAre(1, -2, 2));
  EXPECT_THAT(minimum(a_, b_).to_vector<float>(), ElementsAre(1, -2, 0.5f));
  EXPECT_THAT(a_.maximum(b_).to_vector<float>(), ElementsAre(2, 2, 4));
  EXPECT_THAT(a_.lerp(b_, 0.5).to_vector<float>(), ElementsAre(1.5f, 0, 2.25f));
  EXPECT_THAT(addcmul(a_, b_, b_, 2).to_vector<float>(), ElementsAre(9, 6, 4.5f));
  EXPECT_THAT(a_.addcdiv(a_, b_).to_vector<float>(), ElementsAre(1.5f, -3, 12));
  EXPECT_THAT(where(a_ > 0, a_, 0).to_vector<float>(), ElementsAre(1, 0, 4));
  EXPECT_THAT(where(a_ > 0, a_, b_).to_vector<float>(), ElementsAre(1, 2, 4));
  EXPECT_THAT(a_.masked_fill(a_ < 0, 9).to_vector<float>(), ElementsAre(1, 9, 4));
}

TEST_F(ApiElementwiseTest, ShapesBroadcast) {
  const Tensor column = tensor({{10}, {20}}, {.device = "cuda:0"});
  EXPECT_THAT((column + n_).to_vector<int>(), ElementsAre(17, 3, 16, 27, 13, 26));
  EXPECT_EQ(broadcast_shapes({2, 1}, {3}), Shape({2, 3}));
  try {
    (void)(zeros({2, 16}) + zeros({2, 3}));
    ADD_FAILURE() << "expected a ShapeError";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("The size of tensor a (16) must match the size of tensor "
                                        "b (3) at non-singleton dimension 1"));
  }
}

TEST_F(ApiElementwiseTest, TypesPromote) {
  EXPECT_EQ(promote_types(i8, u8), i16);
  EXPECT_EQ(promote_types(f16, bf16), f32);
  EXPECT_EQ(promote_types(i64, f16), f16);
  EXPECT_EQ((n_ + a_).dtype(), f32);
  EXPECT_EQ((n_ + 2.5).dtype(), f32);
  EXPECT_EQ((n_.to(i32) + 2).dtype(), i32);
  EXPECT_EQ((n_.to(i32) + scalar_tensor(2)).dtype(), i32);
  EXPECT_EQ((a_.to(f16) * 2.5).dtype(), f16);
  EXPECT_EQ(exp(n_).dtype(), f32);
  EXPECT_EQ((n_ / 2).dtype(), f32);
  EXPECT_EQ(result_type(n_, a_), f32);
  try {
    n_.add_(1.5);
    ADD_FAILURE() << "expected a DTypeError";
  } catch (const DTypeError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("result type Float can't be cast to the desired output type Long"));
  }
  EXPECT_THAT(n_.to_vector<int>(), ElementsAre(7, -7, 6));
}

}  // namespace
