#include "tensor/impl/stride_algebra.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <gantry/core/error.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry::detail {
namespace {

using gantry::testing::addresses;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The only possible strides of a view with another shape, from the address of one step along each
// dim; none if other addresses contradict them.
std::optional<Dims> brute_force_view(const Shape& sizes, const Dims& strides, const Shape& target) {
  const std::vector<std::int64_t> wanted = addresses(sizes, strides, 0);
  Dims result = Dims::filled(target.size(), 0);
  std::int64_t step = target.product();
  for (int d = 0; d < target.size(); ++d) {
    step /= target[d];
    if (target[d] > 1) result[d] = wanted[static_cast<std::size_t>(step)] - wanted[0];
  }
  if (addresses(target, result, 0) != wanted) return std::nullopt;
  return result;
}

Shape random_factors(std::int64_t product, std::mt19937& random) {
  Shape shape;
  while (product > 1 && shape.size() < 4) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 2; d <= product; ++d) {
      if (product % d == 0) divisors.push_back(d);
    }
    const std::int64_t factor = shape.size() == 3 ? product : divisors[random() % divisors.size()];
    shape.push_back(factor);
    product /= factor;
  }
  while (shape.size() < 6 && random() % 2 == 0) {
    shape.insert(static_cast<int>(random() % static_cast<unsigned>(shape.size() + 1)), 1);
  }
  return shape;
}

TEST(StrideAlgebraTest, FindsAViewExactlyWhenOneExists) {
  std::mt19937 random(7);
  int possible = 0;
  int impossible = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t product = std::int64_t{1} << (random() % 3) << (random() % 3);
    const std::int64_t numel = product * (random() % 2 == 0 ? 3 : 1);
    const Shape sizes = random_factors(numel, random);
    Dims strides = contiguous_strides(sizes);
    // Permute, widen and repeat dims, as chains of views do.
    for (int d = 0; d + 1 < strides.size(); ++d) {
      if (random() % 4 == 0) std::swap(strides[d], strides[d + 1]);
    }
    for (int d = 0; d < strides.size(); ++d) {
      if (random() % 6 == 0) strides[d] = static_cast<std::int64_t>(random() % 5);
    }
    const Shape target = random_factors(numel, random);
    const auto found = view_strides(sizes, strides, target);
    const auto expected = brute_force_view(sizes, strides, target);
    if (found) {
      EXPECT_EQ(addresses(target, *found, 0), addresses(sizes, strides, 0))
          << sizes << strides << " as " << target;
      ++possible;
    } else {
      EXPECT_FALSE(expected.has_value()) << sizes << strides << " as " << target << *expected;
      ++impossible;
    }
  }
  EXPECT_GT(possible, 1000);
  EXPECT_GT(impossible, 1000);
}

TEST(StrideAlgebraTest, ContiguousStridesAreRowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Dims{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Dims{});
  EXPECT_TRUE(is_contiguous({2, 1, 4}, {4, 99, 1}));
  EXPECT_TRUE(is_contiguous({2, 0}, {7, 7}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_TRUE(is_contiguous({}, {}));
}

TEST(StrideAlgebraTest, InfersOneSize) {
  EXPECT_EQ(infer_sizes("view", {2, -1}, 6, Device::cpu()), (Shape{2, 3}));
  EXPECT_EQ(infer_sizes("view", {-1}, 0, Device::cpu()), (Shape{0}));
  EXPECT_EQ(infer_sizes("view", {}, 1, Device::cpu()), Shape{});
  EXPECT_EQ(infer_sizes("view", {-1, 3}, 0, Device::cpu()), (Shape{0, 3}));
  EXPECT_THAT(
      [] {
        static_cast<void>(infer_sizes("view", {2, -1}, 5, Device::cpu()));
      },
      ThrowsMessage<ShapeError>("view: shape '[2, -1]' is invalid for input of size 5"));
  EXPECT_THAT(
      [] {
        static_cast<void>(infer_sizes("view", {-1, -1}, 4, Device::cpu()));
      },
      ThrowsMessage<ShapeError>("view: only one dimension can be inferred"));
  EXPECT_THAT([] { static_cast<void>(infer_sizes("view", {-2}, 4, Device::cpu())); },
              ThrowsMessage<ShapeError>("view: invalid shape dimension -2"));
  EXPECT_THAT(
      [] {
        static_cast<void>(infer_sizes("view", {0, -1}, 0, Device::cpu()));
      },
      ThrowsMessage<ShapeError>(HasSubstr("can be any value and is ambiguous")));
}

TEST(StrideAlgebraTest, RejectsLayoutsThatDoNotFit) {
  EXPECT_NO_THROW(check_layout("op", {2, 3}, {3, 1}, 2, DType::f32, 32));
  EXPECT_THROW(check_layout("op", {2, 3}, {3, 1}, 3, DType::f32, 32), ShapeError);
  EXPECT_NO_THROW(check_layout("op", {2, 0}, {3, 1}, 100, DType::f32, 0));
  EXPECT_THAT([] { check_layout("op", {2}, {-1}, 1, DType::f32, 32); },
              ThrowsMessage<ShapeError>(HasSubstr("Negative strides are not supported")));
  EXPECT_THAT(
      [] {
        check_layout("op", {2}, {1, 1}, 0, DType::f32, 32);
      },
      ThrowsMessage<ShapeError>(HasSubstr("mismatch in length of strides and shape")));
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THAT(
      [&] {
        static_cast<void>(checked_numel("zeros", {huge, huge}));
      },
      ThrowsMessage<ShapeError>(HasSubstr("less than 2^63 elements")));
  EXPECT_THAT(
      [&] {
        static_cast<void>(checked_numel("zeros", {huge, huge, 0}));
      },
      ThrowsMessage<ShapeError>(HasSubstr("less than 2^63 elements")));
  EXPECT_THAT([&] { check_layout("op", {huge}, {huge}, 0, DType::f32, 32); },
              ThrowsMessage<ShapeError>(HasSubstr("less than 2^63 bytes")));
}

}  // namespace
}  // namespace gantry::detail
