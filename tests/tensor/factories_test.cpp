#include <gantry/tensor/factories.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <locale>
#include <span>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::all_places;
using testing::elements;
using Numbers = std::vector<double>;

TEST(FactoriesTest, FillWithOneValueInEveryType) {
  for (const Device place : all_places()) {
    for (const DType dtype : all_dtypes()) {
      const TensorOptions options{.dtype = dtype, .device = place};
      EXPECT_EQ(elements(zeros({2, 3}, options)), Numbers(6, 0));
      EXPECT_EQ(elements(ones({2, 3}, options)), Numbers(6, 1));
      EXPECT_EQ(elements(full({3}, 1, options)), Numbers(3, 1));
      const Tensor made = empty({2, 3}, options);
      EXPECT_EQ(made.dtype(), dtype);
      EXPECT_EQ(made.device(), place);
      EXPECT_TRUE(made.is_contiguous());
    }
  }
}

TEST(FactoriesTest, DefaultToF32OnTheCpu) {
  const Tensor made = zeros({2});
  EXPECT_EQ(made.dtype(), f32);
  EXPECT_EQ(made.device(), Device::cpu());
  EXPECT_EQ(full({2}, 3).dtype(), i64);
  EXPECT_EQ(full({2}, 3.5).dtype(), f32);
  EXPECT_EQ(full({2}, true).dtype(), bool_);
  EXPECT_EQ(scalar_tensor(3.5).dtype(), f32);
  EXPECT_EQ(scalar_tensor(3.5).dim(), 0);
  EXPECT_EQ(zeros({}).numel(), 1);
  EXPECT_EQ(zeros({0, 5}).numel(), 0);
}

TEST(FactoriesTest, LikeCopiesDTypeAndDevice) {
  for (const Device place : all_places()) {
    const Tensor other = zeros({2, 3}, {.dtype = i16, .device = place}).t();
    for (const Tensor& made :
         {empty_like(other), zeros_like(other), ones_like(other), full_like(other, 7),
          other.new_empty({3, 2}), other.new_zeros({3, 2}), other.new_ones({3, 2}),
          other.new_full({3, 2}, 2)}) {
      EXPECT_EQ(made.dtype(), i16);
      EXPECT_EQ(made.device(), place);
      EXPECT_EQ(made.sizes(), (Shape{3, 2}));
      EXPECT_TRUE(made.is_contiguous());
    }
    EXPECT_EQ(zeros_like(other, {.dtype = f64}).dtype(), f64);
    EXPECT_EQ(zeros_like(other, {.device = "cpu"}).device(), Device::cpu());
    EXPECT_EQ(elements(full_like(other, 7)), Numbers(6, 7));
    EXPECT_EQ(elements(other.new_ones({2})), Numbers(2, 1));
  }
}

TEST(FactoriesTest, ArangeCountsFromStartToEnd) {
  for (const Device place : all_places()) {
    const TensorOptions options{.device = place};
    EXPECT_EQ(elements(arange(4, options)), (Numbers{0, 1, 2, 3}));
    EXPECT_EQ(arange(4, options).dtype(), i64);
    EXPECT_EQ(arange(4.0, options).dtype(), f32);
    EXPECT_EQ(elements(arange(5, -1, -2, options)), (Numbers{5, 3, 1}));
    EXPECT_EQ(elements(arange(1, 8, 3, options)), (Numbers{1, 4, 7}));
    EXPECT_EQ(elements(arange(0, 1, 0.25, options)), (Numbers{0, 0.25, 0.5, 0.75}));
    EXPECT_EQ(elements(arange(3, {.dtype = f16, .device = place})), (Numbers{0, 1, 2}));
    EXPECT_EQ(arange(2, 2, 1, options).numel(), 0);
    EXPECT_EQ(arange(0, INT64_MAX, INT64_MAX, options).numel(), 1);
  }
}

TEST(FactoriesTest, LinspaceReachesBothEndsExactly) {
  for (const Device place : all_places()) {
    EXPECT_EQ(elements(linspace(0, 1, 5, {.device = place})), (Numbers{0, 0.25, 0.5, 0.75, 1}));
    EXPECT_EQ(elements(linspace(3, 9, 1, {.device = place})), (Numbers{3}));
    EXPECT_EQ(linspace(3, 9, 0, {.device = place}).numel(), 0);
    EXPECT_EQ(elements(linspace(0, 10, 4, {.dtype = i64, .device = place})),
              (Numbers{0, 3, 6, 10}));
    for (const std::int64_t steps : {2, 3, 10, 101}) {
      const Numbers values = elements(linspace(0.1, 0.7, steps, {.dtype = f64, .device = place}));
      EXPECT_EQ(values.front(), 0.1);
      EXPECT_EQ(values.back(), 0.7);
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], 0.1 + 0.6 * static_cast<double>(i) / static_cast<double>(steps - 1),
                    1e-15);
      }
    }
    const Numbers powers = elements(logspace(0, 3, 4, 10, {.dtype = f64, .device = place}));
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(powers[static_cast<std::size_t>(i)], std::pow(10, i), 1e-9);
    }
  }
}

TEST(FactoriesTest, LinspaceIsSymmetric) {
  for (const Device place : all_places()) {
    for (std::int64_t steps = 2; steps < 300; ++steps) {
      const Numbers values = elements(linspace(-1, 1, steps, {.dtype = f64, .device = place}));
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], -values[values.size() - 1 - i]) << steps;
      }
    }
  }
}

TEST(FactoriesTest, LinspaceTruncatesIntegersExactly) {
  for (const Device place : all_places()) {
    for (const DType dtype : {u8, i16, i64}) {
      for (std::int64_t end = 1; end < 200; end += 7) {
        for (std::int64_t steps = 2; steps < 200; ++steps) {
          const std::int64_t start = dtype == u8 ? 3 : -end / 2;
          const Numbers values =
              elements(linspace(start, end, steps, {.dtype = dtype, .device = place}));
          for (std::int64_t i = 0; i < steps; ++i) {
            const std::int64_t exact = (start * (steps - 1) + i * (end - start)) / (steps - 1);
            ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<double>(exact))
                << start << " to " << end << " in " << steps << " at " << i;
          }
        }
      }
    }
    EXPECT_EQ(elements(linspace(0, 300, 4, {.dtype = u8, .device = place})),
              (Numbers{0, 100, 200, 255}));
    EXPECT_EQ(elements(linspace(0, 2.5, 6, {.dtype = i64, .device = place})),
              (Numbers{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(linspace(INT64_MIN, INT64_MAX, 1, {.dtype = i64, .device = place})
                  .to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{INT64_MIN}));
  }
}

TEST(FactoriesTest, ArangeOfIntegersTruncatesFractions) {
  for (const Device place : all_places()) {
    const TensorOptions options{.dtype = i64, .device = place};
    EXPECT_EQ(elements(arange(0, 6, 1.5, options)), (Numbers{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(elements(arange(0.5, 7.9, 2.9, options)), (Numbers{0, 2, 4, 6}));
    EXPECT_EQ(elements(arange(4.5, -1.5, -2.0, options)), (Numbers{4, 2, 0}));
    EXPECT_THROW(static_cast<void>(arange(0, 3, 0.5, options)), InvalidArgument);
    EXPECT_THROW(static_cast<void>(arange(0.0, 1e19, 1.0, options)), InvalidArgument);
  }
}

TEST(FactoriesTest, EyeAndTriangles) {
  for (const Device place : all_places()) {
    EXPECT_EQ(elements(eye(2, 3, {.device = place})), (Numbers{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(elements(eye(2, {.dtype = bool_, .device = place})), (Numbers{1, 0, 0, 1}));
    EXPECT_EQ(eye(0).sizes(), (Shape{0, 0}));
    const Tensor t = arange(1, 7, 1, {.device = place}).view({2, 3});
    EXPECT_EQ(elements(tril(t)), (Numbers{1, 0, 0, 4, 5, 0}));
    EXPECT_EQ(elements(t.triu(1)), (Numbers{0, 2, 3, 0, 0, 6}));
    EXPECT_EQ(elements(t.t().tril()), (Numbers{1, 0, 2, 5, 3, 6}));
    EXPECT_EQ(elements(t.tril(-9)), Numbers(6, 0));
  }
}

TEST(FactoriesTest, TensorAcceptsListsAndVectors) {
  for (const Device place : all_places()) {
    const TensorOptions options{.device = place};
    EXPECT_EQ(elements(tensor({1, 2, 3}, options)), (Numbers{1, 2, 3}));
    EXPECT_EQ(tensor({1, 2, 3}, options).dtype(), i64);
    EXPECT_EQ(tensor({1.5, 2.5}, options).dtype(), f32);
    EXPECT_EQ(tensor({true, false}, options).dtype(), bool_);
    EXPECT_EQ(tensor(std::vector<std::uint8_t>{1, 2}, options).dtype(), u8);
    EXPECT_EQ(tensor(std::vector<std::int32_t>{1, 2}, options).dtype(), i64);
    EXPECT_EQ(tensor(std::vector<double>{1, 2}, options).dtype(), f32);
    EXPECT_EQ(tensor(std::vector<float16>{float16(1.5F)}, options).dtype(), f16);
    EXPECT_EQ(elements(tensor(std::vector<bool>{true, false}, options)), (Numbers{1, 0}));
    EXPECT_EQ(tensor({1, 2}, {.dtype = f64, .device = place}).dtype(), f64);
    const Tensor matrix = tensor({{1, 2, 3}, {4, 5, 6}}, options);
    EXPECT_EQ(matrix.sizes(), (Shape{2, 3}));
    EXPECT_EQ(elements(matrix), (Numbers{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(tensor(std::vector<float>{}, options).sizes(), (Shape{0}));
  }
}

TEST(FactoriesTest, EmptyStridedAcceptsAnyLayout) {
  const Tensor made = empty_strided({2, 3}, {1, 4}, {.dtype = i32});
  EXPECT_EQ(made.strides(), (Dims{1, 4}));
  EXPECT_EQ(made.storage().bytes(), 40U);
  EXPECT_EQ(empty_strided({2, 3}, {0, 0}).storage().bytes(), 4U);
}

TEST(FactoriesTest, FromBlobSharesMemoryAndCallsTheDeleterOnce) {
  std::vector<float> memory{1, 2, 3, 4, 5, 6};
  int deleted = 0;
  {
    Tensor view = from_blob(memory.data(), {2, 2}, {1, 3}, [&](void* data) {
      EXPECT_EQ(data, memory.data());
      ++deleted;
    });
    EXPECT_EQ(elements(view), (Numbers{1, 4, 2, 5}));
    const Tensor row = view[0];
    view = Tensor();
    EXPECT_EQ(deleted, 0);
    Tensor(row).fill_(9);
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(memory, (std::vector<float>{9, 2, 3, 9, 5, 6}));
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);
}

class FactoriesDeviceTest : public testing::DeviceTest {};

TEST_F(FactoriesDeviceTest, ResolveTheCurrentDevice) {
  set_device(Device::cuda(device_count() - 1));
  EXPECT_EQ(zeros({2}, {.device = "cuda"}).device(), Device::cuda(device_count() - 1));
  EXPECT_EQ(zeros({2}).cuda().device(), Device::cuda(device_count() - 1));
  EXPECT_EQ(zeros({2}, {.device = "cuda:0"}).device(), Device::cuda(0));
}

TEST_F(FactoriesDeviceTest, PinnedMemoryIsPinned) {
  const Tensor made = zeros({4}, {.pinned = true});
  EXPECT_TRUE(made.is_pinned());
  EXPECT_TRUE(made.is_cpu());
  EXPECT_FALSE(zeros({4}).is_pinned());
  EXPECT_TRUE(zeros({4}).pin_memory().is_pinned());
  EXPECT_TRUE(made.pin_memory().is_view_of(made));
  EXPECT_TRUE(made.options().pinned);
  EXPECT_TRUE(from_blob(made.data(), {4}).is_pinned());
  for (const DType dtype : {i32, i64, f32, f64}) {
    const TensorOptions pinned{.dtype = dtype, .pinned = true};
    EXPECT_TRUE(linspace(0, 1, 3, pinned).is_pinned()) << dtype;
    EXPECT_TRUE(logspace(0, 1, 3, 10, pinned).is_pinned()) << dtype;
    EXPECT_TRUE(randperm(3, pinned).is_pinned()) << dtype;
    EXPECT_TRUE(arange(0, 3, 1.5, pinned).is_pinned()) << dtype;
  }
}

TEST(FactoriesTest, FromBlobRejectsMemoryOfAnotherDevice) {
  GANTRY_REQUIRE_DEVICES(1);
  std::vector<float> host(4);
  try {
    static_cast<void>(from_blob(host.data(), {4}, {.device = "cuda:0"}));
    FAIL() << "a host address passed for device memory";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "from_blob: expected memory of cuda:0, but got a host address");
  }
  const Tensor owner = ones({4}, {.device = "cuda:0"});
  EXPECT_TRUE(from_blob(owner.data(), {4}, {.device = "cuda:0"}).equal(owner));
}

TEST(FactoriesTest, ViewsCannotHaveMoreElementsThanI64Counts) {
  const std::int64_t large = std::int64_t{1} << 32;
  EXPECT_THROW(static_cast<void>(ones({1}).expand({large, large})), ShapeError);
  EXPECT_EQ(ones({1}).expand({large, 2}).numel(), 2 * large);
}

TEST(FactoriesTest, AcceptADTypeOrADeviceAlone) {
  for (const Device place : all_places()) {
    EXPECT_EQ(zeros({2}, place).device(), place);
    EXPECT_EQ(tensor({1.5, 2.5}, place).device(), place);
    EXPECT_EQ(tensor({{1, 2}}, place).sizes(), (Shape{1, 2}));
    EXPECT_EQ(arange(0, 4, 2, place).device(), place);
    EXPECT_EQ(ones({2}).new_zeros({3}, place).device(), place);
    EXPECT_EQ(zeros_like(ones({2}, f16), place).dtype(), f16);
  }
  EXPECT_EQ(empty({2}, f16).dtype(), f16);
  EXPECT_EQ(zeros({2}, i64).dtype(), i64);
  EXPECT_EQ(ones({2}, bool_).dtype(), bool_);
  EXPECT_EQ(full({2}, 3, f64).dtype(), f64);
  EXPECT_EQ(full_like(ones({2}), 3, u8).dtype(), u8);
  EXPECT_EQ(arange(3, f32).dtype(), f32);
  EXPECT_EQ(arange(1, 3, f32).dtype(), f32);
  EXPECT_EQ(linspace(0, 1, 3, f64).dtype(), f64);
  EXPECT_EQ(eye(2, i32).dtype(), i32);
  EXPECT_EQ(eye(2, 3, i32).dtype(), i32);
  EXPECT_EQ(scalar_tensor(2, f16).dtype(), f16);
  EXPECT_EQ(tensor(2, f16).dtype(), f16);
  EXPECT_EQ(tensor(std::vector<float>{1}, f64).dtype(), f64);
  EXPECT_EQ(ones({2}).new_full({3}, 2, i8).dtype(), i8);
  EXPECT_EQ(zeros({2}, {}).dtype(), f32);
  EXPECT_EQ(zeros({2}, {.dtype = i32}).dtype(), i32);
}

TEST(FactoriesTest, AcceptShapesInEveryForm) {
  EXPECT_EQ(zeros(4).sizes(), (Shape{4}));
  const std::size_t count = 3;
  EXPECT_EQ(ones(count).sizes(), (Shape{3}));
  EXPECT_EQ(zeros(std::array<std::int64_t, 2>{2, 3}).sizes(), (Shape{2, 3}));
  EXPECT_EQ(full(3, 2.5).sizes(), (Shape{3}));
  EXPECT_EQ(ones({2, 3}).view(-1).sizes(), (Shape{6}));
  EXPECT_EQ(ones({2, 3}).reshape(-1).sizes(), (Shape{6}));
  EXPECT_EQ(ones({1}).expand(4).sizes(), (Shape{4}));
  EXPECT_EQ(ones({2}).repeat(2).sizes(), (Shape{4}));
  EXPECT_EQ(arange(3).flip(std::vector<std::int64_t>{0})[0].item<int>(), 2);
}

TEST(FactoriesTest, TensorAcceptsNumbersListsAndRanges) {
  const Tensor number = tensor(3.5);
  EXPECT_EQ(number.dim(), 0);
  EXPECT_EQ(number.dtype(), f32);
  EXPECT_EQ(number.item<double>(), 3.5);
  EXPECT_EQ(tensor(3).dtype(), i64);
  EXPECT_EQ(tensor(true).dtype(), bool_);
  EXPECT_EQ(tensor(2, {.dtype = f16}).dtype(), f16);
  EXPECT_EQ(tensor({3}).dim(), 1);
  const Tensor cube = tensor({{{1, 2}}, {{3, 4}}});
  EXPECT_EQ(cube.sizes(), (Shape{2, 1, 2}));
  EXPECT_EQ(elements(cube), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(elements(tensor(std::array<int, 2>{5, 6})), (Numbers{5, 6}));
  const std::vector<float> values{7, 8};
  EXPECT_EQ(elements(tensor(std::span(values))), (Numbers{7, 8}));
  EXPECT_EQ(tensor(std::vector<bool>{true, false}).dtype(), bool_);
  EXPECT_THROW((void)tensor({{{1, 2}}, {{3}}}), ShapeError);
  EXPECT_THROW((void)tensor({{{1, 2}, {3, 4}}, {{3, 4}}}), ShapeError);
}

TEST(FactoriesTest, FromBlobAcceptsADeviceAfterTheDeleter) {
  std::vector<float> values{1, 2, 3, 4};
  int deleted = 0;
  {
    const Tensor t = from_blob(
        values.data(), {2, 2}, {1, 2}, [&](void*) { ++deleted; }, Device::cpu());
    EXPECT_EQ(elements(t), (Numbers{1, 3, 2, 4}));
  }
  EXPECT_EQ(deleted, 1);
  static_cast<void>(from_blob(values.data(), {4}, [&](void*) { ++deleted; }));
  EXPECT_EQ(deleted, 2);
  EXPECT_EQ(from_blob(values.data(), {2}, i32).dtype(), i32);
  EXPECT_EQ(elements(from_blob(values.data(), 2, Device::cpu())), (Numbers{1, 2}));
}

TEST(FactoriesTest, NewTensorsAreMadeOfNestedLists) {
  for (const Device place : all_places()) {
    const Tensor t = zeros({1}, {.dtype = f16, .device = place});
    const auto check = [&](const Tensor& made, const Shape& sizes, const Numbers& expected) {
      EXPECT_EQ(made.dtype(), f16);
      EXPECT_EQ(made.device(), place);
      EXPECT_EQ(made.sizes(), sizes);
      EXPECT_EQ(elements(made), expected);
    };
    check(t.new_tensor(3), {}, {3});
    check(t.new_tensor({1, 2}), {2}, {1, 2});
    check(t.new_tensor({{1, 2, 3}}), {1, 3}, {1, 2, 3});
    check(t.new_tensor({{1.5, 2.0}, {3.0, 4.0}}), {2, 2}, {1.5, 2, 3, 4});
    check(t.new_tensor({{true}, {false}}), {2, 1}, {1, 0});
    check(t.new_tensor({{{1, 2}}, {{3, 4}}}), {2, 1, 2}, {1, 2, 3, 4});
    const Tensor wide = t.new_tensor({{1, 2}}, {.dtype = i64, .device = Device::cpu()});
    EXPECT_EQ(wide.dtype(), i64);
    EXPECT_TRUE(wide.is_cpu());
    EXPECT_EQ(t.new_tensor({{{1}}}, {.dtype = u8}).dtype(), u8);
    const std::vector<std::int64_t> values{1, 2};
    for (const Tensor& made :
         {t.new_tensor(3, i64), t.new_tensor({1, 2}, i64), t.new_tensor({{1, 2}}, i64),
          t.new_tensor({{{1, 2}}}, i64), t.new_tensor(values, i64)}) {
      EXPECT_EQ(made.dtype(), i64);
      EXPECT_EQ(made.device(), place);
    }
    for (const Tensor& made :
         {t.new_tensor(3, "cpu"), t.new_tensor({1, 2}, Device::cpu()),
          t.new_tensor({{1, 2}}, "cpu"), t.new_tensor({{{1, 2}}}, Device::cpu()),
          t.new_tensor(values, "cpu"), t.new_tensor(values, TensorOptions{.device = "cpu"})}) {
      EXPECT_EQ(made.dtype(), f16);
      EXPECT_TRUE(made.is_cpu());
    }
    const Tensor cube = tensor({{{1, 2}}}, place);
    EXPECT_EQ(cube.sizes(), (Shape{1, 1, 2}));
    EXPECT_EQ(cube.device(), place);
    EXPECT_EQ(tensor({{{1, 2}}}, u8).dtype(), u8);
    EXPECT_EQ(logspace(0, 1, 2, 2.0, f64).dtype(), f64);
    EXPECT_EQ(randint_like(t, 4, i32).dtype(), i32);
    EXPECT_THROW((void)t.new_tensor({{1, 2}, {3}}), ShapeError);
    EXPECT_THROW((void)t.new_tensor({{{1}, {2}}, {{3}}}), ShapeError);
  }
  EXPECT_THROW((void)Tensor().new_tensor({{1}}), InvalidArgument);
  EXPECT_THROW((void)Tensor().new_tensor({{{1}}}), InvalidArgument);
}

TEST(FactoriesTest, RejectValuesThatTheDTypeCannotHold) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([] { (void)full({2}, 300, u8); }),
            "full: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_EQ(message([] { (void)full({2}, 1e6, f16); }),
            "full: value cannot be converted to type f16 without overflow, got 1e+06");
  EXPECT_EQ(message([] { ones({2}, u8).fill_(300); }),
            "fill_: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_EQ(message([] { ones({2}, i64)[0] = std::nan(""); }),
            "fill_: value cannot be converted to type i64 without overflow, got nan");
  EXPECT_EQ(message([] { ones({2}, u8).masked_fill_(ones({2}, bool_), 300); }),
            "masked_fill_: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_EQ(message([] { (void)tensor({300}).item<std::uint8_t>(); }),
            "value cannot be converted to type u8 without overflow, got 300");
  EXPECT_EQ(message([] { (void)full({1}, std::numeric_limits<std::uint64_t>::max()); }),
            "Scalar: expected an integer of at most 9223372036854775807, but got "
            "18446744073709551615");
  // The number format does not depend on the program's locale.
  struct Grouped : std::numpunct<char> {
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  EXPECT_EQ(message([] { (void)full({2}, 1234567, u8); }),
            "full: value cannot be converted to type u8 without overflow, got 1234567");
  EXPECT_EQ(message([] { (void)tensor({1234567}).item<std::uint8_t>(); }),
            "value cannot be converted to type u8 without overflow, got 1234567");
  std::locale::global(before);
  // As in PyTorch, negative numbers wrap in u8 and arithmetic wraps.
  EXPECT_EQ(elements(full({1}, -1, u8)), (Numbers{255}));
  EXPECT_EQ(elements(ones({1}, u8) + 300), (Numbers{45}));
  EXPECT_EQ(elements(full({1}, INFINITY, f16)), (Numbers{INFINITY}));
}

}  // namespace
}  // namespace gantry
