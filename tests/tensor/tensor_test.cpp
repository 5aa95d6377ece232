#include <gantry/tensor/tensor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_places;
using testing::elements;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(TensorTest, HasProperties) {
  for (const Device place : all_places()) {
    const Tensor t = zeros({2, 3, 4}, {.dtype = i16, .device = place}).transpose(0, 2);
    EXPECT_TRUE(t.defined());
    EXPECT_EQ(t.sizes(), (Shape{4, 3, 2}));
    EXPECT_EQ(t.size(-1), 2);
    EXPECT_EQ(t.strides(), (Dims{1, 4, 12}));
    EXPECT_EQ(t.stride(0), 1);
    EXPECT_EQ(t.dim(), 3);
    EXPECT_EQ(t.numel(), 24);
    EXPECT_EQ(t.dtype(), i16);
    EXPECT_EQ(t.device(), place);
    EXPECT_EQ(t.is_cuda(), place.is_cuda());
    EXPECT_EQ(t.element_size(), 2U);
    EXPECT_EQ(t.nbytes(), 48U);
    EXPECT_FALSE(t.is_contiguous());
    const Tensor part = t.narrow(1, 1, 2);
    EXPECT_EQ(part.storage_offset(), 4);
    EXPECT_EQ(static_cast<std::byte*>(part.data()) - static_cast<std::byte*>(t.data()), 8);
    EXPECT_TRUE(part.is_view_of(t));
    EXPECT_EQ(t.data_ptr<std::int16_t>(), t.data());
    EXPECT_EQ(t.data_ptr<const std::int16_t>(), t.data());
    const TensorRef ref = part.ref();
    EXPECT_EQ(ref.data, part.data());
    EXPECT_EQ(ref.ndim, 3);
    EXPECT_EQ(ref.sizes[1], 2);
    EXPECT_EQ(ref.strides[2], 12);
    EXPECT_EQ(*t.options().device, place);
    EXPECT_EQ(*t.options().dtype, i16);
  }
}

TEST(TensorTest, IsAHandle) {
  Tensor a = zeros({2});
  const Tensor b = a;
  a.fill_(3);
  EXPECT_EQ(elements(b), (std::vector<double>{3, 3}));
  Tensor c = std::move(a);
  EXPECT_FALSE(a.defined());  // NOLINT: moved-from on purpose
  EXPECT_TRUE(c.defined());
  a = c;
  EXPECT_TRUE(a.is_view_of(b));
}

TEST(TensorTest, RejectsTheWrongElementType) {
  EXPECT_THAT([] { static_cast<void>(zeros({2}, {.dtype = i64}).data_ptr<float>()); },
              ThrowsMessage<DTypeError>("data_ptr: expected scalar type Float but found Long"));
}

TEST(TensorTest, EqualComparesShapesAndElements) {
  for (const Device place : all_places()) {
    const Tensor a = arange(6, {.dtype = f32, .device = place}).view({2, 3});
    EXPECT_TRUE(a.equal(a.clone()));
    EXPECT_TRUE(a.equal(a.t().clone().t()));
    EXPECT_FALSE(a.equal(a.view({3, 2})));
    EXPECT_FALSE(a.equal(a + (a == 5)));
    EXPECT_TRUE(a.narrow(0, 0, 0).equal(a.narrow(0, 1, 0)));
    const Tensor nan = full({1}, std::nan(""), {.device = place});
    EXPECT_FALSE(nan.equal(nan));
  }
}

TEST(TensorTest, AllcloseUsesBothTolerances) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Device place : all_places()) {
    const TensorOptions f64_here{.dtype = f64, .device = place};
    const Tensor a = tensor({1.0, 100.0, inf}, f64_here);
    EXPECT_TRUE(a.allclose(tensor({1.000005, 100.0005, inf}, f64_here)));
    EXPECT_FALSE(a.allclose(tensor({1.0001, 100.0, inf}, f64_here)));
    EXPECT_TRUE(a.allclose(tensor({1.0001, 100.0, inf}, f64_here), 0, 1e-3));
    EXPECT_FALSE(a.allclose(tensor({1.0, 100.0, -inf}, f64_here)));
    EXPECT_FALSE(a.allclose(tensor({1.0, 100.0, 5.0}, f64_here), 1, 1));
    const Tensor nan = full({1}, std::nan(""), {.device = place});
    EXPECT_FALSE(nan.allclose(nan));
    EXPECT_TRUE(nan.allclose(nan, 1e-5, 1e-8, true));
    const Tensor integers = tensor({10, 20}, {.device = place});
    EXPECT_TRUE(integers.allclose(integers + 1, 0, 1));
    EXPECT_FALSE(integers.allclose(integers + 1));
    EXPECT_EQ(elements(a.isclose(tensor({1.0, 5.0, inf}, f64_here))),
              (std::vector<double>{1, 0, 1}));
    EXPECT_TRUE((integers > 10).allclose(integers == 20));
  }
}

TEST(TensorTest, FillAcceptsNumbersAndZeroDimTensors) {
  for (const Device place : all_places()) {
    Tensor t = zeros({4}, {.dtype = i32, .device = place});
    t.slice(0, 0, 4, 2).fill_(2.9);
    EXPECT_EQ(elements(t), (std::vector<double>{2, 0, 2, 0}));
    t.fill_(scalar_tensor(7));
    EXPECT_EQ(elements(t), std::vector<double>(4, 7));
    t.zero_();
    EXPECT_EQ(elements(t), std::vector<double>(4, 0));
  }
}

TEST(TensorTest, MaskedFillKeepsTheType) {
  for (const Device place : all_places()) {
    Tensor t = arange(4, {.dtype = i32, .device = place});
    const Tensor mask = t > 1;
    const Tensor filled = t.masked_fill(mask, 9.7);
    EXPECT_EQ(filled.dtype(), i32);
    EXPECT_EQ(elements(filled), (std::vector<double>{0, 1, 9, 9}));
    EXPECT_EQ(elements(t), (std::vector<double>{0, 1, 2, 3}));
    t.masked_fill_(mask, scalar_tensor(-1.5));
    EXPECT_EQ(elements(t), (std::vector<double>{0, 1, -1, -1}));
    EXPECT_EQ(t.masked_fill(mask.view({1, 4}).expand({2, 4}), 0).sizes(), (Shape{2, 4}));
  }
}

TEST(TensorTest, ItemNeedsOneElement) {
  for (const Device place : all_places()) {
    EXPECT_THAT([&] { static_cast<void>(zeros({2}, {.device = place}).item()); },
                ThrowsMessage<InvalidArgument>(
                    "item: a Tensor with 2 elements cannot be converted to Scalar"));
    EXPECT_THAT([&] { static_cast<void>(zeros({0}, {.device = place}).item<float>()); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a Tensor with 0 elements")));
  }
}

TEST(TensorTest, ToVectorConvertsAndKeepsRowMajorOrder) {
  for (const Device place : all_places()) {
    const Tensor t = arange(6, {.device = place}).view({2, 3}).t();
    EXPECT_EQ(t.to_vector<double>(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(t.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(t.to_vector<long long>().size(), 6U);
    EXPECT_TRUE(t.narrow(0, 0, 0).to_vector<float>().empty());
    // Larger than the page-locked bounce buffer.
    const Tensor large = ones({3, 1 << 20}, {.dtype = f64, .device = place});
    EXPECT_EQ(large.to_vector<float>(), std::vector<float>(3 << 20, 1.0F));
  }
}

TEST(TensorTest, ConstUseFromManyThreads) {
  for (const Device place : all_places()) {
    const Tensor shared = arange(1000, {.dtype = f32, .device = place});
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          const Tensor view = shared.view({10, 100}).t();
          if (view.to_vector<float>()[1] == 100) ++good;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, 80);
  }
}

TEST(TensorTest, AssignmentToAViewWritesItsElements) {
  for (const Device place : all_places()) {
    Tensor t = zeros({3, 2}, {.device = place});
    t[0] = ones({2}, {.device = place});
    EXPECT_EQ(elements(t), (std::vector<double>{1, 1, 0, 0, 0, 0}));
    const Tensor row = full({2}, 2, {.device = place});
    t.index({1}) = row;
    EXPECT_EQ(elements(t), (std::vector<double>{1, 1, 2, 2, 0, 0}));
    t[2] = 3.0;
    EXPECT_EQ(elements(t), (std::vector<double>{1, 1, 2, 2, 3, 3}));
    t.t() = tensor({7, 8, 9}, {.device = place});  // broadcast and converted
    EXPECT_EQ(elements(t), (std::vector<double>{7, 7, 8, 8, 9, 9}));
    t[0] = t[2];
    EXPECT_EQ(elements(t[0]), (std::vector<double>{9, 9}));
    EXPECT_THAT([&] { t[0] = zeros({3}, {.device = place}); },
                ThrowsMessage<ShapeError>(HasSubstr("must match the size of tensor b (3)")));
    EXPECT_THROW(t[0] = Tensor(), InvalidArgument);
    EXPECT_THROW(Tensor() = t, InvalidArgument);
  }
}

TEST(TensorTest, AssignmentToAVariableRebindsTheHandle) {
  Tensor a = zeros({2});
  const Tensor before = a;
  Tensor b = ones({3});
  a = b;
  EXPECT_TRUE(a.is_view_of(b));
  EXPECT_EQ(elements(before), (std::vector<double>{0, 0}));
  a = zeros({4});
  EXPECT_EQ(a.numel(), 4);
  std::swap(a, b);
  EXPECT_EQ(a.numel(), 3);
  std::tie(a, b) = std::pair(b, a);
  EXPECT_EQ(a.numel(), 4);
  std::vector<Tensor> list{a, b};
  list.erase(list.begin());
  list.insert(list.begin(), zeros({5}));
  list[1] = a;
  EXPECT_EQ(list[0].numel(), 5);
  EXPECT_TRUE(list[1].is_view_of(a));
  std::optional<Tensor> maybe;
  maybe = a;
  maybe = zeros({6});
  EXPECT_EQ(maybe->numel(), 6);
  a = {};
  EXPECT_FALSE(a.defined());
  static_assert(std::is_nothrow_move_constructible_v<Tensor>);
  static_assert(std::is_nothrow_move_assignable_v<Tensor>);
  static_assert(std::is_copy_assignable_v<Tensor>);
  static_assert(!std::is_assignable_v<Tensor&, double>);
  static_assert(std::is_swappable_v<Tensor>);
}

TEST(TensorTest, HasAnUntypedAddress) {
  const Tensor t = zeros({2}, {.dtype = i16});
  EXPECT_EQ(t.data_ptr(), t.data());
}

}  // namespace
}  // namespace gantry
