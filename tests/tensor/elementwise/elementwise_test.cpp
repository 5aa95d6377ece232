#include <gantry/tensor/elementwise.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class ElementwiseTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(ElementwiseTest);

TEST_P(ElementwiseTest, BroadcastsOperands) {
  const Tensor column = on(arange(3)).unsqueeze(1);
  const Tensor row = on(arange(10, 14));
  const Tensor sum = column + row;
  EXPECT_EQ(sum.sizes(), (Shape{3, 4}));
  EXPECT_EQ(sum.device(), device_);
  EXPECT_THAT(sum.to_vector<int64_t>(),
              ElementsAre(10, 11, 12, 13, 11, 12, 13, 14, 12, 13, 14, 15));
  EXPECT_ERROR(
      on(zeros({2, 16})) + on(zeros({2, 3})), ShapeError,
      "add: The size of tensor a (16) must match the size of tensor b (3) at non-singleton "
      "dimension 1");
}

TEST_P(ElementwiseTest, WorksOnViews) {
  const Tensor base = on(arange(12)).view({3, 4});
  EXPECT_THAT((base.t() * 2).slice(0, 1, 3).contiguous().to_vector<int64_t>(),
              ElementsAre(2, 10, 18, 4, 12, 20));
  Tensor target = on(zeros({3, 4}, {.dtype = i64}));
  target.select(1, 2).add_(base.select(1, 1));
  EXPECT_THAT(target.to_vector<int64_t>(), ElementsAre(0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0));
}

TEST_P(ElementwiseTest, PromotesOperands) {
  const Tensor ints = on(arange(3, {.dtype = i32}));
  EXPECT_EQ((ints + 2).dtype(), i32);
  EXPECT_EQ((ints + 2.5).dtype(), f32);
  EXPECT_EQ((ints / ints).dtype(), f32);
  EXPECT_EQ(floor_divide(ints, 2).dtype(), i32);
  EXPECT_EQ(exp(ints).dtype(), f32);
  EXPECT_EQ((ints < 2).dtype(), bool_);
  EXPECT_EQ((on(zeros({2}, {.dtype = f16})) + on(zeros({2}, {.dtype = bf16}))).dtype(), f32);
  EXPECT_EQ((on(zeros({2}, {.dtype = u8})) * on(ones({2}, {.dtype = i8}))).dtype(), i16);
  EXPECT_THAT((ints + on(tensor({0.5, 1.5, 2.5}))).to_vector<float>(),
              ElementsAre(0.5f, 2.5f, 4.5f));
}

TEST_P(ElementwiseTest, ScalesByAlpha) {
  const Tensor a = on(arange(3));
  EXPECT_THAT(add(a, a, 3).to_vector<int64_t>(), ElementsAre(0, 4, 8));
  EXPECT_THAT(sub(10, a, 2).to_vector<int64_t>(), ElementsAre(10, 8, 6));
  EXPECT_ERROR(
      add(a, a, 0.5), DTypeError,
      "add: For integral input tensors, argument alpha must not be a floating point number.");
}

TEST_P(ElementwiseTest, WorksInPlace) {
  Tensor a = on(tensor({1.0f, 4.0f, 9.0f}));
  const void* memory = a.data();
  a.sqrt_().add_(1).mul_(a);
  a -= 1;
  EXPECT_EQ(a.data(), memory);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(3, 8, 15));
  Tensor half = on(ones({2}, {.dtype = f16}));
  half.add_(on(full({2}, 0.25, {.dtype = f64})));
  EXPECT_EQ(half.dtype(), f16);
  EXPECT_THAT(half.to_vector<float>(), ElementsAre(1.25f, 1.25f));
}

TEST_P(ElementwiseTest, RejectsBadOutputsAndChangesNothing) {
  Tensor ints = on(arange(3));
  EXPECT_ERROR(ints.add_(0.5), DTypeError,
               "add: result type Float can't be cast to the desired output type Long");
  EXPECT_ERROR(ints.exp_(), DTypeError,
               "exp: result type Float can't be cast to the desired output type Long");
  EXPECT_ERROR(ints.add_(on(zeros({2, 3}, {.dtype = i64}))), ShapeError,
               "add: output with shape [3] doesn't match the broadcast shape [2, 3]");
  Tensor expanded = on(zeros({1}, {.dtype = i64})).expand({3});
  EXPECT_ERROR(expanded.add_(1), InvalidArgument,
               "unsupported operation: more than one element of the written-to tensor refers to a "
               "single memory location.");
  Tensor front = ints.slice(0, 0, 2);
  EXPECT_ERROR(front.add_(ints.slice(0, 1, 3)), InvalidArgument,
               "some elements of the input tensor and the written-to tensor refer to a single "
               "memory location.");
  EXPECT_THAT(ints.to_vector<int64_t>(), ElementsAre(0, 1, 2));
}

TEST_P(ElementwiseTest, WritesToGivenOutputs) {
  Tensor out = on(empty({2, 2}, {.dtype = f64}));
  Tensor transposed = out.t();
  const Tensor a = on(tensor({1.0f, 2.0f, 3.0f, 4.0f})).view({2, 2});
  EXPECT_EQ(&mul_out(transposed, a, 2), &transposed);
  EXPECT_THAT(out.to_vector<double>(), ElementsAre(2, 6, 4, 8));
  Tensor flags = on(empty({2, 2}, {.dtype = f32}));
  gt_out(flags, a, 2);
  EXPECT_THAT(flags.to_vector<float>(), ElementsAre(0, 0, 1, 1));
}

TEST_P(ElementwiseTest, RejectsUnsupportedDTypes) {
  const Tensor flags = on(ones({2}, {.dtype = bool_}));
  const Tensor reals = on(ones({2}));
  EXPECT_ERROR(neg(flags), DTypeError,
               "Negation, the `-` operator, on a bool tensor is not supported.");
  EXPECT_ERROR(flags - flags, DTypeError,
               "Subtraction, the `-` operator, with two bool tensors is not supported.");
  EXPECT_ERROR(bitwise_and(reals, reals), DTypeError,
               "bitwise_and: expected operands of an integral type or bool, but got Float");
  EXPECT_ERROR(~reals, DTypeError,
               "bitwise_not: expected a tensor of an integral type or bool, but got Float");
  EXPECT_ERROR(bitwise_left_shift(flags, flags), DTypeError,
               "bitwise_left_shift: expected operands of an integral type, but got Bool");
  EXPECT_ERROR(frac(on(arange(2))), DTypeError,
               "frac: expected a tensor of a floating type, but got Long");
  EXPECT_ERROR(clamp(flags, false), DTypeError,
               "clamp: expected a tensor of numbers, but got Bool");
  EXPECT_ERROR(lerp(on(arange(2)), on(arange(2)), 0), DTypeError,
               "lerp: expected operands of a floating type");
  EXPECT_ERROR(
      where(reals, reals, reals), DTypeError,
      "where: expected condition to be a boolean tensor, but got a tensor with dtype Float");
  EXPECT_ERROR(clamp(reals, std::nullopt), InvalidArgument,
               "At least one of 'min' or 'max' must not be None");
  EXPECT_ERROR(add(1, 2), InvalidArgument,
               "add: expected at least one tensor, but got only numbers");
  EXPECT_ERROR(add(reals, Tensor()), InvalidArgument, "add");
}

TEST_P(ElementwiseTest, RoundingDoesNotChangeIntegers) {
  const Tensor ints = on(tensor({-3, 7}));
  for (const Tensor& result : {floor(ints), ceil(ints), round(ints), trunc(ints)}) {
    EXPECT_EQ(result.dtype(), ints.dtype());
    EXPECT_FALSE(result.is_view_of(ints));
    EXPECT_THAT(result.to_vector<int64_t>(), ElementsAre(-3, 7));
  }
}

TEST_P(ElementwiseTest, DividesByRoundingMode) {
  const Tensor a = on(tensor({7, -7}));
  EXPECT_THAT(div(a, 2).to_vector<float>(), ElementsAre(3.5f, -3.5f));
  EXPECT_THAT(div(a, 2, RoundingMode::trunc).to_vector<int64_t>(), ElementsAre(3, -3));
  EXPECT_THAT(div(a, 2, RoundingMode::floor).to_vector<int64_t>(), ElementsAre(3, -4));
  EXPECT_THAT(floor_divide(a, 0).to_vector<int64_t>(), ElementsAre(0, 0));
  EXPECT_THAT(remainder(a, 4).to_vector<int64_t>(), ElementsAre(3, 1));
  EXPECT_THAT(fmod(a, 4).to_vector<int64_t>(), ElementsAre(3, -3));
  EXPECT_THAT(pow(2, on(tensor({0, 5}))).to_vector<int64_t>(), ElementsAre(1, 32));
}

TEST_P(ElementwiseTest, ClampsBetweenTensorsAndNumbers) {
  const Tensor a = on(tensor({-5, 0, 5}));
  EXPECT_THAT(clamp(a, -1, 1).to_vector<int64_t>(), ElementsAre(-1, 0, 1));
  EXPECT_THAT(clamp(a, 1).to_vector<int64_t>(), ElementsAre(1, 1, 5));
  EXPECT_THAT(clamp(a, std::nullopt, 1).to_vector<int64_t>(), ElementsAre(-5, 0, 1));
  EXPECT_THAT(clamp(a, Operand(on(tensor({-9, 2, 2}))), Operand(3)).to_vector<int64_t>(),
              ElementsAre(-5, 2, 3));
  EXPECT_EQ(clamp(a, 0.5).dtype(), f32);
}

TEST_P(ElementwiseTest, CombinesThreeOperands) {
  const Tensor a = on(tensor({1.0f, 2.0f}));
  const Tensor b = on(tensor({3.0f, 6.0f}));
  EXPECT_THAT(lerp(a, b, 0.5).to_vector<float>(), ElementsAre(2, 4));
  EXPECT_THAT(addcmul(a, a, b, 2).to_vector<float>(), ElementsAre(7, 26));
  EXPECT_THAT(addcdiv(a, b, a, 10).to_vector<float>(), ElementsAre(31, 32));
  const Tensor ints = on(tensor({2, 3}));
  EXPECT_THAT(addcmul(ints, ints, ints, 2).to_vector<int64_t>(), ElementsAre(10, 21));
  EXPECT_THAT(ints.clone().addcmul_(ints, ints).to_vector<int64_t>(), ElementsAre(6, 12));
  EXPECT_THAT(addcmul(ints, ints > 2, ints).to_vector<int64_t>(), ElementsAre(2, 6));
  // The product has the promoted dtype of all three operands.
  const Tensor bytes = on(tensor({100, 200})).to(u8);
  EXPECT_THAT(addcmul(ints, bytes, bytes).to_vector<int64_t>(), ElementsAre(10002, 40003));
  // The output is an input.
  const Tensor own = ints.clone();
  EXPECT_THAT(own.addcmul_(own, own).to_vector<int64_t>(), ElementsAre(6, 12));
}

TEST_P(ElementwiseTest, MaxAndMinAcceptTwoTensors) {
  const Tensor a = on(tensor({1, 5, 3}));
  const Tensor b = on(tensor({2.0, std::nan(""), -4.0}));
  EXPECT_TRUE(max(a, b).allclose(maximum(a, b), 0, 0, true));
  EXPECT_TRUE(a.min(b).allclose(minimum(a, b), 0, 0, true));
  EXPECT_EQ(a.max(a.view({3, 1})).sizes(), (Shape{3, 3}));
  EXPECT_EQ(min(a, b).dtype(), f32);
}

TEST_P(ElementwiseTest, SelectsByACondition) {
  const Tensor a = on(arange(4));
  EXPECT_THAT(where(a > 1, a, -1).to_vector<int64_t>(), ElementsAre(-1, -1, 2, 3));
  EXPECT_THAT(where(a > 1, a, 0.5).to_vector<float>(), ElementsAre(0.5f, 0.5f, 2, 3));
  EXPECT_EQ(where(a > 1, 1, 2).dtype(), i64);
  EXPECT_EQ(where(a.unsqueeze(1) > 1, a, 0).sizes(), (Shape{4, 4}));
}

TEST_P(ElementwiseTest, ReplacesNanAndInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor a = on(tensor({NAN, kInf, -kInf, 1.5f}));
  EXPECT_THAT(nan_to_num(a).to_vector<float>(),
              ElementsAre(0, std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(), 1.5f));
  EXPECT_THAT(nan_to_num(a.to(f16), 1, 2, 3).to_vector<float>(), ElementsAre(1, 2, 3, 1.5f));
  EXPECT_THAT(isnan(a).to_vector<bool>(), ElementsAre(true, false, false, false));
  EXPECT_THAT(isinf(a).to_vector<bool>(), ElementsAre(false, true, true, false));
  EXPECT_THAT(isfinite(a).to_vector<bool>(), ElementsAre(false, false, false, true));
}

TEST_P(ElementwiseTest, AcceptsEmptyTensors) {
  const Tensor none = on(zeros({0, 3}));
  EXPECT_EQ((none + 1).sizes(), (Shape{0, 3}));
  EXPECT_EQ((none + on(zeros({3}))).sizes(), (Shape{0, 3}));
  EXPECT_EQ(exp(none).numel(), 0);
}

class ElementwiseDeviceTest : public testing::DeviceTest {};

TEST_F(ElementwiseDeviceTest, AcceptsOneCpuScalarTensor) {
  const Tensor a = arange(3).cuda(0);
  const Tensor sum = a + scalar_tensor(10);
  EXPECT_EQ(sum.device(), Device::cuda(0));
  EXPECT_THAT(sum.to_vector<int64_t>(), ElementsAre(10, 11, 12));
  EXPECT_THAT(sub(scalar_tensor(2.5), a).to_vector<float>(), ElementsAre(2.5f, 1.5f, 0.5f));
  EXPECT_EQ((a + scalar_tensor(2.5, {.dtype = f64})).dtype(), f64);
  EXPECT_THAT(where(scalar_tensor(true), a, -1).to_vector<int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_ERROR(clamp(a, scalar_tensor(0), scalar_tensor(1)), DeviceMismatchError,
               "Trying to pass too many CPU scalars to non-CPU kernel!");
}

TEST_F(ElementwiseDeviceTest, RejectsOperandsOfTwoDevices) {
  const Tensor a = arange(3).cuda(0);
  EXPECT_ERROR(a + arange(3), DeviceMismatchError,
               "Expected all tensors to be on the same device, but found at least two devices, "
               "cuda:0 and cpu!");
  Tensor host = arange(3);
  EXPECT_ERROR(host.add_(scalar_tensor(1).cuda(0)), DeviceMismatchError,
               "Expected all tensors to be on the same device");
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_ERROR(a + arange(3).cuda(1), DeviceMismatchError,
               "Expected all tensors to be on the same device, but found at least two devices, "
               "cuda:0 and cuda:1!");
}

TEST_F(ElementwiseDeviceTest, PlacesResultsWithTheOperands) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor a = arange(3).cuda(1);
  const DeviceGuard guard(Device::cuda(0));
  const Tensor sum = a * 2 + 1.5;
  EXPECT_EQ(sum.device(), Device::cuda(1));
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_THAT(sum.to_vector<float>(), ElementsAre(1.5f, 3.5f, 5.5f));
}

TEST_F(ElementwiseDeviceTest, GivesTheSameBitsAsTheCpu) {
  const Tensor a = randn({257, 33});
  const Tensor b = rand({33});
  const auto both = [](auto function, const Tensor& x, const Tensor& y) {
    return function(x, y).equal(function(x.cuda(0), y.cuda(0)).cpu());
  };
  EXPECT_TRUE(both([](const Tensor& x, const Tensor& y) { return x + y; }, a, b));
  EXPECT_TRUE(both([](const Tensor& x, const Tensor& y) { return x / y; }, a, b));
  EXPECT_TRUE(both([](const Tensor& x, const Tensor& y) { return sqrt(abs(x)) * y; }, a, b));
  EXPECT_TRUE(both([](const Tensor& x, const Tensor& y) { return floor_divide(x, y); }, a, b));
  EXPECT_TRUE(both(
      [](const Tensor& x, const Tensor& y) { return (x.to(f16) - y.to(bf16)).to(i16); }, a, b));
}

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  return tensor.cpu().contiguous().view(u8).to_vector<std::uint8_t>();
}

TEST_F(ElementwiseDeviceTest, CpuScalarTensorsGiveTheBitsOfTheCpu) {
  using Function = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<Function> any{
      [](const Tensor& t, const Tensor& s) { return t + s; },
      [](const Tensor& t, const Tensor& s) { return t * s; },
      [](const Tensor& t, const Tensor& s) { return t.minimum(s); },
      [](const Tensor& t, const Tensor& s) { return maximum(s, t); },
      [](const Tensor& t, const Tensor& s) { return t.clamp(s); },
      [](const Tensor& t, const Tensor& s) { return t.clamp(std::nullopt, s); },
      [](const Tensor& t, const Tensor& s) { return t.clamp(0, s); },
      [](const Tensor& t, const Tensor& s) { return t.remainder(s); },
      [](const Tensor& t, const Tensor& s) { return t.eq(s); },
      [](const Tensor& t, const Tensor& s) { return t.lt(s); },
      [](const Tensor& t, const Tensor& s) { return ge(s, t); },
      [](const Tensor& t, const Tensor& s) { return t.logical_and(s); },
      [](const Tensor& t, const Tensor& s) { return t.logical_xor(s); },
      [](const Tensor& t, const Tensor& s) { return t.div(s); },
      [](const Tensor& t, const Tensor& s) { return where(t > 1, t, s); }};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor values =
      tensor({-kInf, -5.0f, -0.0f, 0.1f, 1.0f, 2.0f, 3.0f, 5.0f, 100.0f, kInf, NAN});
  for (const DType dtype : {u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    const Tensor t = values.to(dtype);
    for (const Tensor& scalar :
         {tensor(261), tensor(256), tensor((std::int64_t{1} << 32) + 1), tensor(-1), tensor(0.1),
          tensor(0.5), tensor(2.0), tensor(-1.0), tensor(0.1, f64), tensor(3, u8), tensor(true)}) {
      for (std::size_t k = 0; k < any.size(); ++k) {
        EXPECT_EQ(bytes_of(any[k](t, scalar)), bytes_of(any[k](t.cuda(0), scalar)))
            << "function " << k << " of " << dtype << " and " << scalar.str();
      }
    }
  }
  // CUDA's pow may differ from the host's in the last bits.
  for (const DType dtype : {i32, f16, f32, f64}) {
    const Tensor t = values.to(dtype);
    for (const Tensor& scalar : {tensor(0.5), tensor(2.0), tensor(3, u8), tensor(0.1, f64)}) {
      EXPECT_TRUE(t.pow(scalar).allclose(t.cuda(0).pow(scalar).cpu(), 1e-3, 0, /*equal_nan=*/true))
          << dtype << " to the power of " << scalar.str();
    }
  }
  const Tensor halves = values.to(f16);
  EXPECT_EQ(bytes_of(lerp(halves, halves, tensor(0.3))),
            bytes_of(lerp(halves.cuda(0), halves.cuda(0), tensor(0.3))));
}

TEST_P(ElementwiseTest, ComparesSixteenBitFloatsWithNumbersOfTheirOwn) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    EXPECT_TRUE(full({1}, 0.1, options(dtype)).eq(0.1).item<bool>()) << dtype;
    EXPECT_TRUE(full({1}, 0.1, options(dtype)).eq(tensor(0.1, f64)).item<bool>()) << dtype;
    EXPECT_FALSE(full({1}, 0.1, options(dtype)).lt(0.1).item<bool>()) << dtype;
  }
}

TEST_P(ElementwiseTest, LerpIsExactAtItsEnd) {
  const Tensor ends = on(tensor({3.0f, 0.7f, -1e-8f}));
  EXPECT_TRUE(on(tensor({1e8f, 0.1f, 7.0f})).lerp(ends, 1.0).equal(ends));
}

TEST_P(ElementwiseTest, DivAcceptsTheModeAsText) {
  const Tensor a = on(tensor({-7.0, 7.0}));
  EXPECT_THAT(div(a, 2, "floor").to_vector<float>(), ElementsAre(-4, 3));
  EXPECT_THAT(a.div(2, "trunc").to_vector<float>(), ElementsAre(-3, 3));
  Tensor out = on(zeros({2}));
  EXPECT_THAT(div_out(out, a, 2, "floor").to_vector<float>(), ElementsAre(-4, 3));
  EXPECT_THAT(out.copy_(a).div_(2, "trunc").to_vector<float>(), ElementsAre(-3, 3));
  EXPECT_ERROR(div(a, 2, "ceil"), InvalidArgument,
               "div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
               "'ceil'");
}

TEST_P(ElementwiseTest, ShiftsAndRemaindersAreOperators) {
  const Tensor a = on(tensor({1, 6}));
  EXPECT_THAT((a << 2).to_vector<int>(), ElementsAre(4, 24));
  EXPECT_THAT((a >> 1).to_vector<int>(), ElementsAre(0, 3));
  EXPECT_THAT((a << a).to_vector<int>(), ElementsAre(2, 384));
  EXPECT_THAT((12 >> a).to_vector<int>(), ElementsAre(6, 0));
  EXPECT_THAT((1 << a).to_vector<int>(), ElementsAre(2, 64));
  EXPECT_THAT((a << a >> a).to_vector<int>(), ElementsAre(1, 6));
  Tensor b = a.clone();
  b <<= 3;
  EXPECT_THAT(b.to_vector<int>(), ElementsAre(8, 48));
  b >>= a;
  EXPECT_THAT(b.to_vector<int>(), ElementsAre(4, 0));
  b %= 3;
  EXPECT_THAT(b.to_vector<int>(), ElementsAre(1, 0));
}

TEST_P(ElementwiseTest, NonFiniteTestsAndReplacementsWriteToOutputs) {
  Tensor t = on(tensor({NAN, INFINITY, -INFINITY, 1.0f}));
  Tensor flags = zeros({4}, options(bool_));
  EXPECT_THAT(isnan_out(flags, t).to_vector<bool>(), ElementsAre(true, false, false, false));
  EXPECT_THAT(isinf_out(flags, t).to_vector<bool>(), ElementsAre(false, true, true, false));
  EXPECT_THAT(isfinite_out(flags, t).to_vector<bool>(), ElementsAre(false, false, false, true));
  Tensor wide = zeros({4}, options(f64));
  EXPECT_THAT(nan_to_num_out(wide, t, 5, 6, 7).to_vector<double>(), ElementsAre(5, 6, 7, 1));
  // The replacement of NaN is not itself replaced.
  EXPECT_THAT(t.clone().nan_to_num_(INFINITY, 6, 7).to_vector<float>(),
              ElementsAre(INFINITY, 6, 7, 1));
  EXPECT_THAT(
      t.nan_to_num_().to_vector<float>(),
      ElementsAre(0, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), 1));
  EXPECT_THAT(on(tensor({1, 2})).nan_to_num().to_vector<int>(), ElementsAre(1, 2));
  Tensor mask = on(tensor({true, false}));
  EXPECT_THAT(mask.nan_to_num_().to_vector<bool>(), ElementsAre(true, false));
  Tensor integers = zeros({4}, options(i64));
  EXPECT_ERROR(nan_to_num_out(integers, t), DTypeError,
               "nan_to_num: result type Float can't be cast to the desired output type Long");
  EXPECT_THAT(masked_fill(on(tensor({1.0, 2.0})), mask, 9).to_vector<float>(), ElementsAre(9, 2));
}

TEST_P(ElementwiseTest, NumbersRoundToHalfOnce) {
  const double number = 1 + 0x1p-11 + 0x1p-40;
  const float rounded = 1 + 0x1p-10f;
  const Tensor mask = on(tensor({true, false}));
  EXPECT_THAT(masked_fill(zeros({2}, options(f16)), mask, number).to_vector<float>(),
              ElementsAre(rounded, 0));
  EXPECT_THAT(full({1}, number, options(f16)).to_vector<float>(), ElementsAre(rounded));
  EXPECT_THAT(zeros({1}, options(f16)).fill_(number).to_vector<float>(), ElementsAre(rounded));
  const Tensor wide = full({1}, number, options(f64));
  EXPECT_EQ(static_cast<float>(wide.item<float16>()), rounded);
  EXPECT_THAT(wide.to(f16).to_vector<float>(), ElementsAre(rounded));
}

TEST_P(ElementwiseTest, ErrorsNameTheDevice) {
  try {
    Tensor t = zeros({2}, options(f32));
    t.add_(zeros({3}, options(f32)));
    ADD_FAILURE() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_TRUE(error.device() == device_) << error.device();
  }
}

}  // namespace
}  // namespace gantry
