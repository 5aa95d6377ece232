#include <gantry/tensor/reductions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ReductionsTest : public testing::PlacedTest {
 protected:
  // [[1, 2, 3], [4, 5, 6]]
  Tensor matrix(DType dtype = f32) const { return tensor({{1, 2, 3}, {4, 5, 6}}, options(dtype)); }
};

TEST_P(ReductionsTest, SumsAllOneOrSeveralDims) {
  const Tensor t = matrix();
  EXPECT_EQ(t.sum().item<float>(), 21);
  EXPECT_EQ(t.sum().sizes(), Shape{});
  EXPECT_THAT(t.sum(0).to_vector<float>(), ElementsAre(5, 7, 9));
  EXPECT_THAT(t.sum(-1).to_vector<float>(), ElementsAre(6, 15));
  EXPECT_EQ(t.sum(1, true).sizes(), Shape({2, 1}));
  EXPECT_EQ(t.sum({0, 1}, true).sizes(), Shape({1, 1}));
  EXPECT_EQ(t.sum({}, true).sizes(), Shape({1, 1}));
  const Tensor cube = arange(24, options()).view({2, 3, 4});
  EXPECT_THAT(cube.sum({0, 2}).to_vector<float>(), ElementsAre(60, 92, 124));
  EXPECT_THAT(cube.transpose(0, 2).sum({0, 2}).to_vector<float>(), ElementsAre(60, 92, 124));
  EXPECT_EQ(scalar_tensor(7, options()).sum().item<float>(), 7);
  EXPECT_EQ(scalar_tensor(7, options()).sum(0).sizes(), Shape{});
  EXPECT_EQ(t.sum().device(), t.device());
}

TEST_P(ReductionsTest, SumsOfIntegersAndBoolAreI64ByDefault) {
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64}) {
    const Tensor t = ones({300}, options(dtype));
    EXPECT_EQ(t.sum().dtype(), i64);
    EXPECT_EQ(t.sum().item<std::int64_t>(), 300);
    EXPECT_EQ(t.prod().dtype(), i64);
    EXPECT_EQ(t.prod().item<std::int64_t>(), 1);
    EXPECT_EQ(t.cumsum(0).dtype(), i64);
  }
  for (const DType dtype : {f16, bf16, f32, f64}) {
    EXPECT_EQ(ones({3}, options(dtype)).sum().dtype(), dtype);
  }
  const Tensor t = matrix(i32);
  EXPECT_EQ(t.sum({}, false, i32).dtype(), i32);
  EXPECT_EQ(t.sum({}, false, f16).dtype(), f16);
  EXPECT_EQ(t.sum({}, false, f16).item<float>(), 21);
  const Tensor halves = full({4}, 1.5, options());
  EXPECT_EQ(halves.sum({}, false, i64).item<std::int64_t>(), 4);  // converted, then summed
}

TEST_P(ReductionsTest, MeanIsOfFloatingTypes) {
  EXPECT_THAT(matrix().mean(0).to_vector<float>(), ElementsAre(2.5, 3.5, 4.5));
  EXPECT_EQ(matrix(f16).mean().dtype(), f16);
  EXPECT_EQ(matrix(i64).mean({}, false, f64).item<double>(), 3.5);
  EXPECT_TRUE(std::isnan(zeros({0}, options()).mean().item<float>()));
  EXPECT_THAT(message_of<DTypeError>([&] { (void)matrix(i64).mean(); }),
              HasSubstr("mean(): could not infer output dtype. Input dtype must be either a "
                        "floating point or complex dtype. Got: Long"));
}

TEST_P(ReductionsTest, MaxAndMinGiveValuesAndFirstIndices) {
  const Tensor t = tensor({{3, 9, 9, 1}, {1, 1, 4, 4}}, options(i32));
  const auto [values, indices] = t.max(1);
  EXPECT_THAT(values.to_vector<std::int32_t>(), ElementsAre(9, 4));
  EXPECT_THAT(indices.to_vector<std::int64_t>(), ElementsAre(1, 2));
  EXPECT_EQ(values.dtype(), i32);
  EXPECT_EQ(indices.dtype(), i64);
  EXPECT_THAT(t.min(1).indices.to_vector<std::int64_t>(), ElementsAre(3, 0));
  EXPECT_EQ(t.max(0, true).values.sizes(), Shape({1, 4}));
  EXPECT_EQ(t.max().item<int>(), 9);
  EXPECT_EQ(t.min().item<int>(), 1);
  EXPECT_THAT(t.amax(0).to_vector<std::int32_t>(), ElementsAre(3, 9, 9, 4));
  EXPECT_THAT(t.amin({0, 1}).to_vector<std::int32_t>(), ElementsAre(1));
  EXPECT_EQ(t.argmax().item<int>(), 1);
  EXPECT_EQ(t.t().argmax().item<int>(), 2);  // of the flat, transposed tensor
  EXPECT_EQ(t.argmax({}, true).sizes(), Shape({1, 1}));
  EXPECT_THAT(t.argmin(0).to_vector<std::int64_t>(), ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(t.argmin(0, true).sizes(), Shape({1, 4}));
  const Tensor nan = tensor({1.0, kNan, 5.0}, options());
  EXPECT_TRUE(std::isnan(nan.max().item<float>()));
  EXPECT_TRUE(std::isnan(nan.amin().item<float>()));
  EXPECT_EQ(nan.argmin().item<int>(), 1);
  EXPECT_EQ(scalar_tensor(5, options()).max(0).indices.item<int>(), 0);
}

TEST_P(ReductionsTest, RejectsExtremaOfEmptyReductions) {
  const Tensor t = zeros({2, 0}, options());
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.max(1); }),
              HasSubstr("max(): Expected reduction dim 1 to have non-zero size."));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.amin(1); }),
              HasSubstr("amin(): Expected reduction dim 1 to have non-zero size."));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.argmax(); }),
              HasSubstr("argmax(): Expected reduction dim to be specified for input.numel() == 0. "
                        "Specify the reduction dim with the 'dim' argument."));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)t.max(); }),
              HasSubstr("max(): Expected reduction dim to be specified"));
  EXPECT_EQ(t.max(0).values.sizes(), Shape({0}));
  EXPECT_EQ(t.amax(0).sizes(), Shape({0}));
}

TEST_P(ReductionsTest, RejectsDimsOutOfRange) {
  const Tensor t = matrix();
  EXPECT_THAT(message_of<IndexError>([&] { (void)t.sum(2); }),
              HasSubstr("Dimension out of range (expected to be in range of [-2, 1], but got 2)"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                (void)t.sum({0, -2});
              }),
              HasSubstr("dim 0 appears multiple times in the list of dims"));
  EXPECT_THAT(message_of<IndexError>([&] { (void)t.softmax(-3); }),
              HasSubstr("Dimension out of range"));
  EXPECT_THAT(message_of<InvalidArgument>([] { (void)Tensor().sum(); }), HasSubstr("undefined"));
}

TEST_P(ReductionsTest, AnyAllAndCountTestForNonzero) {
  const Tensor t = tensor({{0.0, 2.0, kNan}, {0.0, 0.0, 1.0}}, options());
  EXPECT_THAT(t.any(0).to_vector<bool>(), ElementsAre(false, true, true));
  EXPECT_THAT(t.all(0).to_vector<bool>(), ElementsAre(false, false, true));
  EXPECT_TRUE(t.any().item<bool>());
  EXPECT_FALSE(t.all().item<bool>());
  EXPECT_EQ(t.any().dtype(), bool_);
  EXPECT_THAT(t.count_nonzero(1).to_vector<std::int64_t>(), ElementsAre(2, 1));
  EXPECT_FALSE(zeros({0}, options()).any().item<bool>());
  EXPECT_TRUE(zeros({0}, options()).all().item<bool>());
}

TEST_P(ReductionsTest, ANonZeroBoolByteCountsAsOne) {
  const Tensor flags = tensor({7, 0, 1, 255}, options(u8)).view(bool_);
  EXPECT_EQ(flags.sum().item<int>(), 3);
  EXPECT_EQ(flags.amax().item<int>(), 1);
  EXPECT_EQ(flags.argmax().item<int>(), 0);
  EXPECT_THAT(flags.cumsum(0).to_vector<int>(), ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(flags.to_vector<bool>(), ElementsAre(true, false, true, true));
  EXPECT_THAT(flags.to_vector<int>(), ElementsAre(1, 0, 1, 1));
  EXPECT_EQ(flags.slice(0, 3, 4).item<int>(), 1);
}

TEST_P(ReductionsTest, OfBoolMemoryAreZeroOrOne) {
  const Tensor bytes = tensor({2, 0, 255, 4, 0, 0}, options(u8));
  const Tensor loose = from_blob(bytes.data(), {2, 3}, options(bool_));
  const auto stored = [](const Tensor& t) { return t.view(u8).to_vector<int>(); };
  EXPECT_THAT(stored(max(loose, 0).values), ElementsAre(1, 0, 1));
  EXPECT_THAT(stored(max(loose, 1).values), ElementsAre(1, 1));
  EXPECT_THAT(stored(min(loose, 0).values), ElementsAre(1, 0, 0));
  EXPECT_THAT(stored(max(loose, 0, true).values), ElementsAre(1, 0, 1));
  EXPECT_THAT(stored(loose.amax(0)), ElementsAre(1, 0, 1));
  EXPECT_THAT(stored(loose.amin(0)), ElementsAre(1, 0, 0));
  EXPECT_THAT(stored(loose.any(0)), ElementsAre(1, 0, 1));
  EXPECT_THAT(stored(loose.all(0)), ElementsAre(1, 0, 0));
  EXPECT_THAT(stored(max(loose)), ElementsAre(1));
}

TEST_P(ReductionsTest, NormsOfEveryOrder) {
  const Tensor t = tensor({{3.0, -4.0}, {0.0, 12.0}}, options());
  EXPECT_EQ(t.norm().item<float>(), 13);
  EXPECT_THAT(t.norm(2, 1).to_vector<float>(), ElementsAre(5, 12));
  EXPECT_EQ(t.norm(1).item<float>(), 19);
  EXPECT_EQ(t.norm(0).item<float>(), 3);
  EXPECT_EQ(t.norm(INFINITY).item<float>(), 12);
  EXPECT_EQ(t.norm(-INFINITY).item<float>(), 0);
  EXPECT_NEAR(t.norm(3).item<double>(), std::cbrt(27 + 64 + 1728), 1e-4);
  EXPECT_EQ(t.norm(2, 0, true).sizes(), Shape({1, 2}));
  // The squares overflow f16; the norm does not.
  EXPECT_EQ(full({4}, 1000, options(f16)).norm().item<float>(), 2000);
  EXPECT_THAT(message_of<DTypeError>([&] { (void)matrix(i32).norm(); }),
              HasSubstr("norm: expected a floating type, but got Int"));
}

TEST_P(ReductionsTest, VarianceAndDeviation) {
  const Tensor t = matrix(f64);
  EXPECT_DOUBLE_EQ(t.var().item<double>(), 3.5);
  EXPECT_DOUBLE_EQ(t.var({}, 0).item<double>(), 17.5 / 6);
  EXPECT_THAT(t.var(1).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_THAT(t.std(0).to_vector<double>(),
              ElementsAre(std::sqrt(4.5), std::sqrt(4.5), std::sqrt(4.5)));
  EXPECT_EQ(t.var(1, 1, true).sizes(), Shape({2, 1}));
  EXPECT_TRUE(std::isnan(ones({1}, options()).var().item<float>()));
  // A large mean does not reduce the accuracy.
  EXPECT_DOUBLE_EQ(t.add(1e9).var().item<double>(), 3.5);
}

TEST_P(ReductionsTest, LogSumExpDoesNotOverflow) {
  const Tensor t =
      tensor({{1000.0, 1000.0}, {-kInfinity, -kInfinity}, {kInfinity, 0.0}}, options());
  const auto values = t.logsumexp(1).to_vector<float>();
  EXPECT_FLOAT_EQ(values[0], 1000 + std::log(2.0f));
  EXPECT_EQ(values[1], -INFINITY);
  EXPECT_EQ(values[2], INFINITY);
  EXPECT_EQ(t.logsumexp({0, 1}, true).sizes(), Shape({1, 1}));
  EXPECT_EQ(zeros({2, 0}, options()).logsumexp(1).to_vector<float>()[0], -INFINITY);
}

TEST_P(ReductionsTest, ScansAlongADim) {
  EXPECT_THAT(matrix().cumsum(1).to_vector<float>(), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(matrix(i8).cumprod(0).to_vector<std::int64_t>(), ElementsAre(1, 2, 3, 4, 10, 18));
  EXPECT_EQ(matrix(i8).cumsum(0, f32).dtype(), f32);
  EXPECT_EQ(matrix(i32).cumsum(0, i32).dtype(), i32);
  EXPECT_EQ(scalar_tensor(3, options()).cumsum(0).item<float>(), 3);
  EXPECT_EQ(zeros({0, 3}, options()).cumsum(0).sizes(), Shape({0, 3}));
}

TEST_P(ReductionsTest, SoftmaxSumsToOne) {
  const Tensor t = tensor({{0.0, std::log(3.0)}, {5.0, 5.0}}, options(f64));
  const auto values = t.softmax(-1).to_vector<double>();
  EXPECT_NEAR(values[0], 0.25, 1e-15);
  EXPECT_NEAR(values[1], 0.75, 1e-15);
  EXPECT_EQ(values[2], 0.5);
  EXPECT_NEAR(t.log_softmax(-1).to_vector<double>()[0], std::log(0.25), 1e-14);
  EXPECT_EQ(matrix(i32).softmax(0, f32).dtype(), f32);
  EXPECT_EQ(scalar_tensor(3, options()).softmax(0).item<float>(), 1);
  EXPECT_THAT(message_of<DTypeError>([&] { (void)matrix(i64).softmax(0); }),
              HasSubstr("softmax: expected a floating type, but got Long"));
}

INSTANTIATE_TEST_SUITE_P(Places, ReductionsTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Device") : std::string("Cpu");
});

TEST(ReductionsEverywhereTest, SumsHaveTheSameBitsOnTheCpuAndOnDevicesInAnyLayout) {
  if (device_count() == 0) GTEST_SKIP() << "needs a device";
  const Tensor host = randn({70, 513});
  for (const Tensor& view : {host, host.t(), host.slice(1, 3, 400, 3)}) {
    const Tensor moved = host.cuda(0);
    const Tensor device = moved.as_strided(view.sizes(), view.strides(), view.storage_offset());
    for (const Axes& dims : {Axes(), Axes(0), Axes(1)}) {
      EXPECT_TRUE(view.sum(dims).equal(device.sum(dims).cpu()));
      EXPECT_TRUE(view.mean(dims).equal(device.mean(dims).cpu()));
      // Another layout of the same values is the same reduction.
      EXPECT_TRUE(view.sum(dims).equal(view.contiguous().sum(dims)));
    }
  }
}

TEST_P(ReductionsTest, VarianceTakesDimsOptionsOrBool) {
  const Tensor t = tensor({{1.0, 3.0}, {5.0, 7.0}}, options());
  EXPECT_FLOAT_EQ(t.var().item<float>(), 20.0f / 3);
  EXPECT_EQ(t.var(false).item<float>(), 5.0f);
  EXPECT_FLOAT_EQ(t.var(true).item<float>(), 20.0f / 3);
  EXPECT_EQ(t.var({.correction = 0}).item<float>(), 5.0f);
  EXPECT_EQ(t.var({.correction = 0, .keepdim = true}).sizes(), Shape({1, 1}));
  EXPECT_THAT(t.var({.dims = 1, .correction = 0}).to_vector<float>(), ElementsAre(1, 1));
  EXPECT_THAT(t.var({0}).to_vector<float>(), ElementsAre(8, 8));
  EXPECT_THAT(t.var(0, 0).to_vector<float>(), ElementsAre(4, 4));
  EXPECT_EQ(t.var({0, 1}, 0).item<float>(), 5.0f);
  EXPECT_FLOAT_EQ(t.var({0, 1}).item<float>(), 20.0f / 3);
  EXPECT_FLOAT_EQ(t.var({}).item<float>(), 20.0f / 3);
  EXPECT_EQ(t.var(1, 1, true).sizes(), Shape({2, 1}));
  EXPECT_EQ(var(t, false).item<float>(), 5.0f);
  EXPECT_EQ(var(t, {.correction = 0}).item<float>(), 5.0f);
  EXPECT_THAT(var(t, {0}).to_vector<float>(), ElementsAre(8, 8));
  EXPECT_FLOAT_EQ(t.std(false).item<float>(), std::sqrt(5.0f));
  EXPECT_FLOAT_EQ(t.std({.correction = 0}).item<float>(), std::sqrt(5.0f));
  EXPECT_THAT(gantry::std(t, {0, -1}, 0).item<float>(), std::sqrt(5.0f));
  static_assert(!std::is_convertible_v<bool, Axes>);
}

TEST_P(ReductionsTest, DimsAreListsOfAnyKind) {
  const std::vector<std::int64_t> both{0, 1};
  const std::array<std::int64_t, 1> last{-1};
  EXPECT_EQ(matrix().sum(both).item<float>(), 21);
  EXPECT_THAT(matrix().sum(last).to_vector<float>(), ElementsAre(6, 15));
  EXPECT_EQ(matrix().amax(std::span(both)).item<float>(), 6);
  EXPECT_EQ(matrix().sum(f64).dtype(), f64);
  EXPECT_EQ(matrix(i32).mean(f32).item<float>(), 3.5f);
  EXPECT_EQ(prod(matrix(), f64).item<double>(), 720);
}

TEST_P(ReductionsTest, ValuesAndIndicesAreATuple) {
  const auto [values, indices] = matrix().max(1);
  EXPECT_THAT(values.to_vector<float>(), ElementsAre(3, 6));
  EXPECT_THAT(indices.to_vector<int>(), ElementsAre(2, 2));
  EXPECT_THAT(get<0>(matrix().max(1)).to_vector<float>(), ElementsAre(3, 6));
  EXPECT_THAT(get<1>(matrix().min(0)).to_vector<int>(), ElementsAre(0, 0, 0));
  Tensor first, second;
  std::tie(first, second) = matrix().max(0);
  EXPECT_THAT(first.to_vector<float>(), ElementsAre(4, 5, 6));
  EXPECT_THAT(second.to_vector<int>(), ElementsAre(1, 1, 1));
  static_assert(std::tuple_size_v<ValuesAndIndices> == 2);
}

}  // namespace
}  // namespace gantry
