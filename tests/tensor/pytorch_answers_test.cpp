// PyTorch's results for dtypes, special values and bad arguments, which gantry reproduces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class PytorchAnswersTest : public testing::PlacedTest {
 protected:
  void SetUp() override {
    PlacedTest::SetUp();
    if (IsSkipped()) return;
    bytes_ = on(tensor({255, 1}).to(u8));
    ints_ = on(tensor({3, -7}).to(i32));
    halves_ = on(tensor({0.5, 2.0}).to(f16));
    floats_ = on(tensor({1.5f, -2.0f}));
    mask_ = on(tensor({true, false}));
  }

  Tensor bytes_, ints_, halves_, floats_, mask_;
};

GANTRY_TEST_PLACES(PytorchAnswersTest);

TEST_P(PytorchAnswersTest, SumAndProdConvertFirst) {
  EXPECT_EQ(on(tensor({2049.0f, -2048.0f})).sum(f16).item<float>(), 0);
  EXPECT_EQ(on(tensor({2049, -2048})).sum(f16).item<float>(), 0);
  EXPECT_EQ(on(tensor({1.001, 1.001, -2.0}, f64)).sum(f16).item<float>(), 0.001953125f);
  EXPECT_TRUE(std::isnan(on(tensor({70000.0f, -70000.0f})).sum(f16).item<float>()));
  EXPECT_TRUE(std::isnan(on(tensor({1e300, -1e300}, f64)).sum(f32).item<float>()));
  EXPECT_EQ(on(tensor({1 + 1e-9, -1.0}, f64)).sum(f32).item<float>(), 0);
  EXPECT_EQ(on(tensor({16777217, -16777216})).sum(f32).item<float>(), 0);
  EXPECT_EQ(on(tensor({1.5f, 1.5f})).prod(i32).item<int>(), 1);
  EXPECT_EQ(on(tensor({70000.0f, 0.5f})).prod(f16).item<float>(), INFINITY);
  for (const DType from : {f16, bf16, f32, f64, i64}) {
    const Tensor source = on(tensor({1.001, 300.7, -7.125, 65519.0, 0.1, 3.0}).to(from));
    for (const DType to : {bool_, u8, i32, i64, f16, bf16, f32, f64}) {
      SCOPED_TRACE(::testing::Message() << from << " to " << to);
      EXPECT_TRUE(source.sum(to).equal(source.to(to).sum(to)));
      EXPECT_TRUE(source.prod({0}, true, to).equal(source.to(to).prod({0}, true, to)));
    }
  }
}

TEST_P(PytorchAnswersTest, MeanRoundsOnceInHalves) {
  EXPECT_EQ(on(tensor({2049.0f, -2048.0f})).mean(f16).item<float>(), 0.5f);
  EXPECT_EQ(on(tensor({2049, -2048})).mean(bf16).item<float>(), 0.5f);
  EXPECT_EQ(on(tensor({1 + 1e-9, -1.0}, f64)).mean(f32).item<float>(), 0);
}

TEST_P(PytorchAnswersTest, RejectBoundsThatNoElementSatisfies) {
  const Tensor before = bytes_.clone();
  EXPECT_ERROR(clamp(bytes_, {}, -5), InvalidArgument,
               "clamp: Clamp max value -5 is outside the representable range of Byte");
  EXPECT_ERROR(clamp(bytes_, 300), InvalidArgument,
               "Clamp min value 300 is outside the representable range of Byte");
  EXPECT_ERROR(clamp(bytes_, tensor(5), -3), InvalidArgument, "Clamp max value -3");
  EXPECT_ERROR(clamp(bytes_, 300, tensor(5)), InvalidArgument, "Clamp min value 300");
  EXPECT_ERROR(bytes_.clamp_({}, -5), InvalidArgument, "Clamp max value -5");
  EXPECT_ERROR(clamp(ints_, std::int64_t{1} << 40), InvalidArgument, "range of Int");
  EXPECT_ERROR(clamp(halves_, {}, 70000), InvalidArgument, "without overflow");
  EXPECT_ERROR(clamp(floats_, -1e300), InvalidArgument, "without overflow");
  EXPECT_TRUE(bytes_.equal(before));
}

TEST_P(PytorchAnswersTest, ClampBoundsThatEveryElementSatisfiesChangeNothing) {
  EXPECT_THAT(clamp(bytes_, -5).to_vector<int>(), ElementsAre(255, 1));
  EXPECT_THAT(clamp(bytes_, -5, 10).to_vector<int>(), ElementsAre(10, 1));
  EXPECT_THAT(clamp(bytes_, 3, 300).to_vector<int>(), ElementsAre(255, 3));
  EXPECT_THAT(clamp(bytes_, tensor(3), 300).to_vector<int>(), ElementsAre(255, 3));
  EXPECT_THAT(clamp(ints_, {}, std::int64_t{1} << 40).to_vector<int>(), ElementsAre(3, -7));
  EXPECT_THAT(clamp(halves_, -INFINITY, INFINITY).to_vector<float>(), ElementsAre(0.5f, 2));
  Tensor in_place = bytes_.clone();
  in_place.clamp_(3, 300);
  EXPECT_THAT(in_place.to_vector<int>(), ElementsAre(255, 3));
}

TEST_P(PytorchAnswersTest, ClampBoundsThatAreTensorsWrap) {
  for (const Device place : {Device::cpu(), device_}) {
    const auto at = [&](std::int64_t value) { return tensor(value).to(place); };
    EXPECT_THAT(clamp(bytes_, {}, at(-5)).to_vector<int>(), ElementsAre(251, 1));
    EXPECT_THAT(clamp(bytes_, at(-5)).to_vector<int>(), ElementsAre(255, 251));
    EXPECT_THAT(clamp(bytes_, on(tensor(3)), at(300)).to_vector<int>(), ElementsAre(44, 3));
  }
}

TEST_P(PytorchAnswersTest, RejectSelectedNumbersThatDoNotFit) {
  const Tensor before = bytes_.clone();
  EXPECT_ERROR(where(mask_, 300, bytes_), InvalidArgument,
               "where: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_ERROR(where(mask_, bytes_, -256), InvalidArgument, "without overflow");
  EXPECT_ERROR(where(mask_, std::int64_t{1} << 40, ints_), InvalidArgument, "type i32");
  EXPECT_ERROR(where(mask_, 1e300, floats_), InvalidArgument, "type f32");
  EXPECT_ERROR(where(mask_, 1e300, bytes_), InvalidArgument, "type f32");
  EXPECT_ERROR(bytes_.where(mask_, 300), InvalidArgument, "without overflow");
  EXPECT_ERROR(where_out(bytes_, mask_, 300, bytes_), InvalidArgument, "without overflow");
  EXPECT_TRUE(bytes_.equal(before));
  EXPECT_THAT(where(mask_, -1, bytes_).to_vector<int>(), ElementsAre(255, 1));
  EXPECT_THAT(where(mask_, 1.5, bytes_).to_vector<float>(), ElementsAre(1.5f, 1));
  EXPECT_THAT(where(mask_, 1e10, halves_).to_vector<float>(), ElementsAre(INFINITY, 2));
  EXPECT_THAT(where(mask_, tensor(300), bytes_).to_vector<int>(), ElementsAre(44, 1));
  EXPECT_THAT(where(mask_, on(tensor(300)), bytes_).to_vector<int>(), ElementsAre(44, 1));
}

TEST_P(PytorchAnswersTest, RejectMaskedFillWithZeroDimTensorsThatDoNotFit) {
  const Tensor before = bytes_.clone();
  EXPECT_ERROR(bytes_.masked_fill(mask_, tensor(300)), InvalidArgument,
               "masked_fill: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_ERROR(bytes_.masked_fill_(mask_, tensor(-300)), InvalidArgument,
               "masked_fill_: value cannot be converted");
  EXPECT_ERROR(ints_.masked_fill(mask_, tensor(NAN)), InvalidArgument, "type i32");
  EXPECT_ERROR(halves_.masked_fill(mask_, tensor(1e10)), InvalidArgument, "type f16");
  EXPECT_TRUE(bytes_.equal(before));
  EXPECT_THAT(bytes_.masked_fill(mask_, tensor(1.5)).to_vector<int>(), ElementsAre(1, 1));
  EXPECT_THAT(bytes_.masked_fill(mask_, tensor(-1)).to_vector<int>(), ElementsAre(255, 1));
}

TEST_P(PytorchAnswersTest, RejectExponentsThatDoNotFit) {
  const Tensor before = bytes_.clone();
  EXPECT_ERROR(pow(bytes_, 300), InvalidArgument,
               "pow: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_ERROR(bytes_.pow_(256), InvalidArgument, "without overflow");
  EXPECT_ERROR(pow(ints_, std::int64_t{1} << 40), InvalidArgument, "type i32");
  EXPECT_ERROR(pow(halves_, 70000), InvalidArgument, "type f16");
  EXPECT_ERROR(pow(bytes_, -1), InvalidArgument, "Integers to negative integer powers");
  EXPECT_TRUE(bytes_.equal(before));
  EXPECT_THAT(pow(bytes_, 255).to_vector<int>(), ElementsAre(255, 1));
  EXPECT_THAT(pow(300, bytes_).to_vector<int>(), ElementsAre(0, 44));
  EXPECT_THAT(pow(bytes_, tensor(300)).to_vector<int>(), ElementsAre(1, 1));
  EXPECT_THAT(pow(floats_, 1e300).to_vector<float>(), ElementsAre(INFINITY, INFINITY));
}

TEST_P(PytorchAnswersTest, SquareOfBoolIsAnInteger) {
  EXPECT_EQ(square(mask_).dtype(), i64);
  EXPECT_THAT(square(mask_).to_vector<int>(), ElementsAre(1, 0));
  EXPECT_EQ(square(bytes_).dtype(), u8);
  EXPECT_ERROR(mask_.square_(), DTypeError,
               "square: result type Long can't be cast to the desired output type Bool");
}

TEST_P(PytorchAnswersTest, LerpAcceptsOneFloatingType) {
  const Tensor doubles = floats_.to(f64);
  EXPECT_ERROR(lerp(ints_, ints_, 0.5), DTypeError, "lerp: expected operands of a floating type");
  EXPECT_ERROR(lerp(ints_, ints_, 1), DTypeError, "floating type, but got Int");
  EXPECT_ERROR(lerp(mask_, mask_, 0.5), DTypeError, "floating type, but got Bool");
  EXPECT_ERROR(lerp(floats_, doubles, 0.5), DTypeError,
               "lerp: expected dtype Float for `end` but got dtype Double");
  EXPECT_ERROR(lerp(floats_, ints_, 0.5), DTypeError, "Float for `end` but got dtype Int");
  EXPECT_ERROR(lerp(floats_, floats_, doubles), DTypeError,
               "lerp: expected dtype Float for `weight` but got dtype Double");
  EXPECT_ERROR(floats_.lerp_(doubles, 0.5), DTypeError, "for `end`");
  EXPECT_EQ(lerp(floats_, floats_, tensor(0.5)).dtype(), f32);
  EXPECT_EQ(lerp(halves_, halves_, on(tensor(0.5))).dtype(), f16);
  EXPECT_THAT(lerp(floats_, floats_ + 2, tensor(1)).to_vector<float>(), ElementsAre(3.5f, 0));
}

TEST_P(PytorchAnswersTest, CatOfEmptyVectorsAcceptsAnyDim) {
  const Tensor none = on(zeros({0}));
  for (const int dim : {-2, 0, 1, 5}) {
    EXPECT_EQ(cat({none}, dim).sizes(), (Shape{0}));
    EXPECT_EQ(cat({none, none}, dim).sizes(), (Shape{0}));
  }
  EXPECT_EQ(cat({none, on(zeros({2, 3}))}, 1).sizes(), (Shape{2, 3}));
  EXPECT_ERROR(cat({on(zeros({2}))}, 1), IndexError,
               "cat: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  EXPECT_ERROR(cat({none, on(zeros({2}))}, 1), IndexError, "Dimension out of range");
  EXPECT_ERROR(cat({on(zeros({2, 0}))}, 2), IndexError, "Dimension out of range");
}

TEST_P(PytorchAnswersTest, ReluKeepsNegativeZero) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    SCOPED_TRACE(name(dtype));
    const std::vector<double> results =
        relu(on(tensor({-0.0, 0.0, -1.0, 2.0, double(NAN)}).to(dtype))).to_vector<double>();
    EXPECT_TRUE(std::signbit(results[0]));
    EXPECT_FALSE(std::signbit(results[1]));
    EXPECT_EQ(results[2], 0);
    EXPECT_FALSE(std::signbit(results[2]));
    EXPECT_EQ(results[3], 2);
    EXPECT_TRUE(std::isnan(results[4]));
  }
}

TEST_P(PytorchAnswersTest, BytesAreConditions) {
  const Tensor condition = on(tensor({0, 2, 255, 1}).to(u8));
  const Tensor picked = where(condition, on(tensor({1, 2, 3, 4})), -1);
  EXPECT_EQ(picked.dtype(), i64);
  EXPECT_THAT(picked.to_vector<int>(), ElementsAre(-1, 2, 3, 4));
  // Strided and broadcast, as a member and with an output.
  const Tensor columns = condition.view({2, 2}).t();
  EXPECT_THAT(where(columns, 1, on(zeros({2}))).to_vector<float>(), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(on(ones({2, 2})).where(columns, 0).to_vector<float>(), ElementsAre(0, 1, 1, 1));
  Tensor out = on(zeros({4}));
  where_out(out, condition, on(ones({4})), 2.0);
  EXPECT_THAT(out.to_vector<float>(), ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(where(on(tensor(3).to(u8)), on(ones({2})), 0).sum().item<float>(), 2);
  for (const DType dtype : {i8, i16, i32, i64, f16, bf16, f32, f64}) {
    EXPECT_ERROR(where(condition.to(dtype), out, 0), DTypeError,
                 "where: expected condition to be a boolean tensor");
  }
}

TEST_P(PytorchAnswersTest, LimitsFillMasks) {
  const auto check = [&]<class T>(T) {
    SCOPED_TRACE(name(dtype_of<T>));
    const Tensor ones = on(gantry::ones({2}, dtype_of<T>));
    const std::vector<T> filled =
        ones.masked_fill(mask_, std::numeric_limits<T>::lowest()).template to_vector<T>();
    EXPECT_EQ(filled[0], std::numeric_limits<T>::lowest());
    EXPECT_EQ(filled[1], T(1));
    EXPECT_EQ(full({}, std::numeric_limits<T>::max(), dtype_of<T>).template item<T>(),
              std::numeric_limits<T>::max());
  };
  check(float16());
  check(bfloat16());
  check(float());
  check(double());
  check(std::int8_t());
  EXPECT_EQ(on(ones({2}, f16))
                .masked_fill(mask_, std::numeric_limits<float16>::lowest())[0]
                .item<float>(),
            -65504);
}

TEST_P(PytorchAnswersTest, AddcdivRejectsIntegerDivision) {
  const char* const kText = "addcdiv: Integer division with addcdiv is no longer supported";
  EXPECT_ERROR(addcdiv(ints_, ints_, ints_), DTypeError, kText);
  EXPECT_ERROR(addcdiv(floats_, ints_, bytes_), DTypeError, kText);
  EXPECT_ERROR(addcdiv(floats_, mask_, mask_), DTypeError, kText);
  EXPECT_ERROR(floats_.addcdiv_(ints_, ints_), DTypeError, kText);
  EXPECT_THAT(addcdiv(ints_, ints_, floats_).to_vector<float>(), ElementsAre(5, -3.5f));
}

TEST_P(PytorchAnswersTest, CumsumOfF32AddsInF64) {
  std::vector<float> values(100000);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / (1 << 24);
  }
  double exact = 0;
  const std::vector<float> sums = on(tensor(values)).cumsum(0).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    exact += values[i];
    ASSERT_EQ(sums[i], static_cast<float>(exact)) << i;
  }
}

}  // namespace
}  // namespace gantry
