#include <gantry/tensor/accessor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/tensor/spans.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using testing::Extents;
using ::testing::HasSubstr;
using testing::kAny;
using testing::RowMajor;
using testing::Span;
using testing::Strided;
using ::testing::ThrowsMessage;

// Reads all elements in row-major order, by brackets.
template <class T, std::size_t N>
void append(std::vector<T>& elements, const TensorAccessor<T, N>& accessor) {
  for (std::int64_t i = 0; i < accessor.size(0); ++i) {
    if constexpr (N == 1) {
      elements.push_back(accessor[i]);
    } else {
      append(elements, accessor[i]);
    }
  }
}

template <class T, std::size_t N>
void expect_all_elements(const Tensor& tensor) {
  const auto accessor = tensor.accessor<T, N>();
  std::vector<T> elements;
  append(elements, accessor);
  EXPECT_EQ(elements, tensor.to_vector<T>());
  for (std::size_t d = 0; d < N; ++d) {
    EXPECT_EQ(accessor.size(d), tensor.size(d));
    EXPECT_EQ(accessor.sizes()[d], tensor.size(d));
    EXPECT_EQ(accessor.stride(d), tensor.stride(d));
    EXPECT_EQ(accessor.strides()[d], tensor.stride(d));
  }
  EXPECT_EQ(accessor.data(), tensor.data_ptr<T>());
}

template <class T>
concept HasAccessor = requires(T&& tensor) {
  std::forward<T>(tensor).template accessor<float, 2>();
};

TEST(AccessorTest, ReadsEveryLayout) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 50; ++round) {
    Tensor t = randn({3, 4, 5});
    t = t.permute(std::vector<Dims>{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}}[below(4)]);
    const int dim = below(3);
    const std::int64_t start = below(3);
    t = t.slice(dim, start, start + below(3), 1 + below(2));
    expect_all_elements<float, 3>(t);
    expect_all_elements<float, 4>(t.unsqueeze(dim).expand({-1, -1, -1, -1}));
    if (t.numel() > 0) expect_all_elements<float, 2>(t.select(dim, 0));
    if (t.numel() > 0) expect_all_elements<float, 1>(t.select(dim, 0).select(1, 1));
  }
  expect_all_elements<std::int64_t, 2>(arange(3).view({3, 1}).expand({3, 2}));
  expect_all_elements<float16, 8>(randn({1, 2, 1, 2, 1, 2, 1, 2}, f16));
}

TEST(AccessorTest, WritesElements) {
  const Tensor t = zeros({2, 3}, i32), transposed = t.t();
  const auto elements = transposed.accessor<std::int32_t, 2>();
  elements[2][1] = 7;
  TensorAccessor<std::int32_t, 1> column = elements[0];
  column[1] = 5;
  EXPECT_THAT(t.to_vector<int>(), ElementsAre(0, 0, 0, 5, 0, 7));
  static_assert(std::same_as<decltype(t.accessor<const int, 2>()[0][0]), const int&>);
  static_assert(HasAccessor<Tensor&> && !HasAccessor<Tensor>);  // its memory may be gone
}

TEST(AccessorTest, ChecksDtypeDimsAndDevice) {
  const Tensor t = zeros({2, 3});
  EXPECT_THAT(([&] { return t.accessor<double, 2>(); }),
              ThrowsMessage<DTypeError>(HasSubstr("expected scalar type Double but found Float")));
  EXPECT_THAT(([&] { return t.accessor<float, 1>(); }),
              ThrowsMessage<ShapeError>("accessor: expected 1 dims but tensor has 2"));
  const Tensor undefined;
  EXPECT_THROW((static_cast<void>(undefined.accessor<float, 1>())), InvalidArgument);
  GANTRY_REQUIRE_DEVICES(1);
  const Tensor on_device = t.cuda(0);
  EXPECT_THAT(
      ([&] { return on_device.accessor<float, 2>(); }),
      ThrowsMessage<InvalidArgument>("accessor: expected a tensor of the CPU, but got one of "
                                     "cuda:0; copy it with cpu(), or pass ref() to a kernel"));
  const Tensor pinned = t.pin_memory();
  EXPECT_EQ((pinned.accessor<float, 2>()[1][2]), 0);
}

#ifndef NDEBUG
TEST(AccessorDeathTest, AssertsThatIndicesAreInRange) {
  const Tensor t = zeros({2, 3});
  const auto elements = t.accessor<float, 2>();
  for (const std::int64_t i : {-1, 2}) EXPECT_DEATH((void)elements[i], "out of range");
  for (const std::int64_t i : {-1, 3}) EXPECT_DEATH((void)elements[1][i], "out of range");
}
#endif

TEST(MdspanTest, HasTheElementsOfEveryLayout) {
  using Matrix = Span<float, Extents<std::int64_t, kAny, kAny>, Strided>;
  const Tensor t = randn({4, 6});
  for (const Tensor& view : {t, t.t(), t.slice(0, 1, 4, 2), t.slice(1, 3), t.narrow(0, 2, 1)}) {
    const auto span = view.mdspan<Matrix>();
    const auto elements = view.accessor<float, 2>();
    for (int d = 0; d < 2; ++d) EXPECT_EQ(span.mapping().extents().extent(d), view.size(d));
    for (std::int64_t i = 0; i < view.size(0); ++i) {
      for (std::int64_t j = 0; j < view.size(1); ++j) EXPECT_EQ(&span(i, j), &elements[i][j]);
    }
  }
  const Tensor cube = randn({2, 3, 4});
  EXPECT_EQ(&(cube.mdspan<Span<const float, Extents<int, 2, kAny, 4>, RowMajor>>()(1, 2, 3)),
            cube.data_ptr<float>() + 23);
  const Tensor one_row = t.slice(1, 0, 1).t();  // the stride of a single row is that of any layout
  EXPECT_EQ(&(one_row.mdspan<Span<float, Extents<int, kAny, kAny>, Strided>>()(0, 2)),
            t.data_ptr<float>() + 12);
}

TEST(MdspanTest, ChecksWhatTheTypeFixes) {
  const Tensor t = zeros({2, 3}), rows = t.narrow(0, 0, 1).expand({4, 3});
  const auto refusal = [](const Tensor& tensor, auto span) {
    try {
      static_cast<void>(tensor.mdspan<typename decltype(span)::type>());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  using Any = Extents<int, kAny, kAny>;
  EXPECT_EQ(refusal(t, std::type_identity<Span<float, Any, Strided>>()), "none");
  EXPECT_EQ(refusal(t, std::type_identity<Span<double, Any, Strided>>()),
            "data_ptr: expected scalar type Double but found Float");
  EXPECT_EQ(refusal(t, std::type_identity<Span<float, Extents<int, kAny>, Strided>>()),
            "mdspan: expected 1 dims but tensor has 2");
  EXPECT_EQ(refusal(t, std::type_identity<Span<float, Extents<int, kAny, 4>, Strided>>()),
            "mdspan: expected size 4 at dim 1, but got size 3 and stride 1");
  EXPECT_EQ(refusal(t.t(), std::type_identity<Span<float, Any, RowMajor>>()),
            "mdspan: expected stride 2 at dim 0, but got size 3 and stride 1");
  EXPECT_EQ(refusal(rows, std::type_identity<Span<float, Any, Strided>>()),
            "mdspan: expected a stride above 0 at dim 0, but got size 4 and stride 0");
  using Small = Extents<std::int8_t, kAny, kAny>;
  EXPECT_EQ(refusal(zeros({200, 1}), std::type_identity<Span<float, Small, Strided>>()),
            "mdspan: expected numbers that fit the index type at dim 0, but got size 200 and "
            "stride 1");
  EXPECT_EQ(refusal(Tensor(), std::type_identity<Span<float, Any, Strided>>()).substr(0, 7),
            "mdspan:");
}

}  // namespace
}  // namespace gantry
