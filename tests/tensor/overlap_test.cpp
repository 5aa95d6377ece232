#include "tensor/overlap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry::detail {
namespace {

using gantry::testing::addresses;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor random_view(const Tensor& base, std::mt19937& random) {
  Tensor view = base;
  for (int d = 0; d < view.dim(); ++d) {
    const std::int64_t size = view.size(d);
    const auto start = static_cast<std::int64_t>(random() % static_cast<unsigned>(size));
    const auto stop =
        start + 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(size - start));
    view = view.slice(d, start, stop, 1 + static_cast<std::int64_t>(random() % 3));
  }
  if (random() % 4 == 0) view = view.transpose(0, 1);
  if (random() % 4 == 0) view = view.select(static_cast<int>(random() % 3), 0);
  return view;
}

// The check never misses a shared element. Rare false positives are allowed, but not for slices of
// one tensor in one orientation.
TEST(OverlapTest, AgreesWithBruteForce) {
  std::mt19937 random(3);
  const Tensor base = zeros({6, 5, 7}, {.dtype = u8});
  int shared_pairs = 0;
  int disjoint_pairs = 0;
  int false_alarms = 0;
  for (int round = 0; round < 20000; ++round) {
    const Tensor a = random_view(base, random);
    const Tensor b = random_view(base, random);
    const std::vector<std::int64_t> in_a = addresses(a);
    const std::vector<std::int64_t> in_b = addresses(b);
    const std::set<std::int64_t> set_a(in_a.begin(), in_a.end());
    const bool shares =
        std::any_of(in_b.begin(), in_b.end(), [&](std::int64_t x) { return set_a.contains(x); });
    const Overlap found = overlap_of(a, b);
    if (found == Overlap::full) {
      ASSERT_EQ(in_a, in_b);
    } else if (shares) {
      ++shared_pairs;
      ASSERT_EQ(found, Overlap::partial) << a.sizes() << a.strides() << b.sizes() << b.strides();
    } else {
      ++disjoint_pairs;
      if (found == Overlap::partial) ++false_alarms;
    }
  }
  EXPECT_GT(shared_pairs, 500);
  EXPECT_GT(disjoint_pairs, 500);
  EXPECT_LT(false_alarms, disjoint_pairs / 4);
}

TEST(OverlapTest, DistinguishesAdjacentSlices) {
  const Tensor base = zeros({4, 6});
  EXPECT_EQ(overlap_of(base.narrow(1, 0, 3), base.narrow(1, 3, 3)), Overlap::none);
  EXPECT_EQ(overlap_of(base.slice(1, 0, 6, 2), base.slice(1, 1, 6, 2)), Overlap::none);
  EXPECT_EQ(overlap_of(base.narrow(1, 1, 5), base.narrow(1, 0, 1)), Overlap::none);
  EXPECT_EQ(overlap_of(base.narrow(1, 0, 4), base.narrow(1, 3, 3)), Overlap::partial);
  EXPECT_EQ(overlap_of(base, base.alias()), Overlap::full);
  EXPECT_EQ(overlap_of(base.narrow(0, 0, 4).narrow(1, 0, 4), base.narrow(1, 0, 4).t()),
            Overlap::partial);
  EXPECT_EQ(overlap_of(base, base.view(i32)), Overlap::partial);
  EXPECT_EQ(overlap_of(base, base.narrow(0, 0, 0)), Overlap::none);
  EXPECT_EQ(overlap_of(base, zeros({4, 6})), Overlap::none);
}

TEST(OverlapTest, FindsRepeatedElements) {
  const Tensor base = zeros({4, 1});
  EXPECT_FALSE(has_internal_overlap(base));
  EXPECT_FALSE(has_internal_overlap(base.t()));
  EXPECT_TRUE(has_internal_overlap(base.expand({4, 3})));
  EXPECT_FALSE(has_internal_overlap(base.expand({4, 1})));
  EXPECT_TRUE(has_internal_overlap(zeros({6}).as_strided({3, 2}, {1, 1})));
  EXPECT_FALSE(has_internal_overlap(zeros({6}).as_strided({2, 3}, {1, 2})));
  EXPECT_TRUE(has_internal_overlap(zeros({5}).unfold(0, 3, 1)));
  EXPECT_FALSE(has_internal_overlap(zeros({6}).unfold(0, 3, 3)));
  EXPECT_FALSE(has_internal_overlap(zeros({1}).expand({0})));
}

TEST(OverlapTest, ErrorsNameTheRemedy) {
  EXPECT_THAT([] { check_writable("add_", zeros({1}).expand({2})); },
              ThrowsMessage<InvalidArgument>(
                  "add_: unsupported operation: more than one element of the written-to tensor "
                  "refers to a single memory location. Please clone() the tensor before performing "
                  "the operation."));
  const Tensor base = zeros({4});
  EXPECT_THAT([&] { check_no_partial_overlap("add_", base.narrow(0, 0, 3), base.narrow(0, 1, 3)); },
              ThrowsMessage<InvalidArgument>(
                  "add_: unsupported operation: some elements of the input tensor and the "
                  "written-to tensor refer to a single memory location. Please clone() the tensor "
                  "before performing the operation."));
  EXPECT_NO_THROW(check_no_partial_overlap("add_", base, base));
  EXPECT_THAT([&] { check_no_overlap("scatter_", base, base); },
              ThrowsMessage<InvalidArgument>(HasSubstr("Please clone()")));
}

}  // namespace
}  // namespace gantry::detail
