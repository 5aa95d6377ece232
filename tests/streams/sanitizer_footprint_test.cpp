#include "streams/sanitizer/footprint.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace gantry::sanitizer {
namespace {

// A layout in a small buffer, and its bytes one by one.
struct Layout {
  std::size_t element_bytes = 1;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  [[nodiscard]] Footprint footprint() const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): no one reads there
    return {
        reinterpret_cast<const void*>(std::uintptr_t{100'000} + static_cast<std::size_t>(offset)),
        element_bytes, sizes, strides};
  }
  [[nodiscard]] std::set<std::int64_t> bytes() const {
    std::set<std::int64_t> starts{offset};
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      std::set<std::int64_t> next;
      for (const std::int64_t start : starts) {
        for (std::int64_t i = 0; i < sizes[d]; ++i) {
          next.insert(start + i * strides[d] * static_cast<std::int64_t>(element_bytes));
        }
      }
      starts = next;
    }
    std::set<std::int64_t> all;
    for (const std::int64_t start : starts) {
      for (std::size_t b = 0; b < element_bytes; ++b) all.insert(start + static_cast<int>(b));
    }
    return all;
  }
};

Layout random_layout(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Layout layout;
  layout.element_bytes = std::size_t{1} << draw(0, 3);
  layout.offset = draw(0, 400);
  const int ndim = draw(0, 4);
  for (int d = 0; d < ndim; ++d) {
    layout.sizes.push_back(draw(0, 20) == 0 ? 0 : draw(1, 5));
    layout.strides.push_back(draw(-3, 30));
  }
  return layout;
}

TEST(SanitizerFootprint, OverlapsExactlyIfAByteIsShared) {
  std::mt19937 random(1);
  int shared = 0;
  int interleaved = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Layout a = random_layout(random);
    const Layout b = random_layout(random);
    const std::set<std::int64_t> bytes_a = a.bytes();
    const std::set<std::int64_t> bytes_b = b.bytes();
    bool expected = false;
    for (const std::int64_t byte : bytes_a) expected = expected || bytes_b.contains(byte);
    ASSERT_EQ(a.footprint().overlaps(b.footprint()), expected) << "round " << i;
    ASSERT_EQ(b.footprint().overlaps(a.footprint()), expected) << "round " << i;
    shared += expected ? 1 : 0;
    interleaved += !expected && a.footprint().begin() < b.footprint().end() &&
                           b.footprint().begin() < a.footprint().end()
                       ? 1
                       : 0;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(interleaved, 100);
}

TEST(SanitizerFootprint, ReachesFromTheFirstByteToTheLast) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const Layout layout = random_layout(random);
    const std::set<std::int64_t> bytes = layout.bytes();
    const Footprint footprint = layout.footprint();
    ASSERT_EQ(footprint.is_empty(), bytes.empty());
    if (bytes.empty()) continue;
    ASSERT_EQ(footprint.begin(), 100'000U + static_cast<std::uint64_t>(*bytes.begin()));
    ASSERT_EQ(footprint.end(), 100'001U + static_cast<std::uint64_t>(*bytes.rbegin()));
  }
}

TEST(SanitizerFootprint, CoversOnlyWhatItContains) {
  std::mt19937 random(3);
  int covered = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Layout a = random_layout(random);
    const Layout b = i % 4 == 0 ? a : random_layout(random);
    if (!a.footprint().covers(b.footprint())) continue;
    const std::set<std::int64_t> bytes = a.bytes();
    for (const std::int64_t byte : b.bytes()) ASSERT_TRUE(bytes.contains(byte)) << "round " << i;
    ++covered;
  }
  EXPECT_GT(covered, 1000);
}

TEST(SanitizerFootprint, ContiguousTensorsAreOneRun) {
  const std::vector<std::int64_t> sizes{4, 5, 6};
  const std::vector<std::int64_t> strides{30, 6, 1};
  const std::vector<std::int64_t> permuted{1, 6, 30};
  const std::vector<std::int64_t> permuted_sizes{6, 5, 4};
  EXPECT_TRUE(Footprint(nullptr, 4, sizes, strides).is_dense());
  EXPECT_TRUE(Footprint(nullptr, 4, permuted_sizes, permuted).is_dense());
  EXPECT_TRUE(Footprint(nullptr, 4, sizes, strides).covers(Footprint(nullptr, 480)));
}

TEST(SanitizerFootprint, AnswersForLargeViewsAtOnce) {
  const std::vector<std::int64_t> sizes{8192, 4096};
  const std::vector<std::int64_t> strides{8192, 2};
  const Footprint even(reinterpret_cast<const void*>(4096), 4, sizes, strides);
  const Footprint odd(reinterpret_cast<const void*>(4100), 4, sizes, strides);
  EXPECT_FALSE(even.overlaps(odd));
  const std::vector<std::int64_t> transposed{2, 8192};
  const std::vector<std::int64_t> transposed_sizes{4096, 8192};
  EXPECT_TRUE(even.overlaps(
      Footprint(reinterpret_cast<const void*>(4096), 4, transposed_sizes, transposed)));
}

}  // namespace
}  // namespace gantry::sanitizer
