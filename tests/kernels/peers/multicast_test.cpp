#include "kernels/peers/multicast.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry {
namespace {

using kernels::Target;
using testing::Array;

std::byte* at(const TensorRef& array, std::int64_t offset) {
  return static_cast<std::byte*>(array.data) + offset;
}

Array bytes(std::int64_t count, std::uint8_t seed) {
  Array array(u8, testing::contiguous({count}));
  for (std::int64_t i = 0; i < count; ++i) {
    array.set<std::uint8_t>(i, seed == 0 ? 0 : static_cast<std::uint8_t>(i * 7 + i / 251 + seed));
  }
  return array;
}

// Copies one region from offset `from` of a source to offset `to` of `copies` destinations.
void expect_copied(std::int64_t from, std::int64_t to, std::int64_t count, int copies,
                   std::int64_t apart) {
  const std::int64_t room = count + 64;
  // All destinations are in one array, at least `room + apart` bytes apart.
  const std::int64_t step = (room + 15) / 16 * 16 + apart;
  const std::vector<Array> arrays{bytes(room, 3), bytes(step * copies, 0)};
  const auto after = testing::run_everywhere(
      arrays,
      [&](const Target& target, const std::vector<TensorRef>& t) {
        std::vector<std::ptrdiff_t> shifts;
        for (int k = 1; k < copies; ++k) shifts.push_back(step * k);
        const CopyRegion region{at(t[0], from), at(t[1], to), static_cast<std::size_t>(count)};
        kernels::multicast(target, std::span(&region, 1), shifts);
      },
      "multicast");
  for (std::int64_t i = 0; i < step * copies; ++i) {
    const std::int64_t offset = i % step - to;
    const std::uint8_t expected =
        offset >= 0 && offset < count ? arrays[0].get<std::uint8_t>(from + offset) : 0;
    ASSERT_EQ(after[1].get<std::uint8_t>(i), expected)
        << "byte " << i << " of " << count << " from " << from << " to " << to;
  }
}

TEST(MulticastKernelTest, CopiesEveryLengthAtEveryAlignment) {
  for (const std::int64_t count : {1, 2, 15, 16, 17, 31, 4095, 16384, 16385, 40001}) {
    for (const std::int64_t from : {0, 1, 2, 4, 8, 13}) {
      for (const std::int64_t to : {0, 1, 2, 4, 8, 13}) {
        if (count > 100 && from + to > 13) continue;
        expect_copied(from, to, count, 1, 0);
      }
    }
  }
}

TEST(MulticastKernelTest, CopiesToDestinationsAtAnyDistance) {
  for (const int copies : {2, 7, 63}) {
    for (const std::int64_t apart : {0, 1, 2, 4, 8}) {
      expect_copied(0, 0, 5000, copies, apart);
      expect_copied(3, 3, 777, copies, apart);
      expect_copied(0, 5, 33, copies, apart);
    }
  }
}

// From a megabyte on, regions may take another kernel.
TEST(MulticastKernelTest, CopiesLargeRegions) {
  for (const std::int64_t rest : {0, 1, 15, 16, 40001}) {
    expect_copied(0, 0, (std::int64_t{1} << 20) + rest, 1, 0);
    expect_copied(16, 48, (std::int64_t{1} << 20) + rest, 7, 16);
  }
  expect_copied(1, 1, std::int64_t{1} << 20, 2, 16);
  expect_copied(0, 0, std::int64_t{1} << 20, 2, 8);
}

TEST(MulticastKernelTest, CopiesThousandsOfRegions) {
  for (const int count : {7, 8, 9, 119, 120, 121, 1099, 1100, 1101, 2500}) {
    // Regions of 0 … 40 bytes, in turn, in reverse order at the destination.
    std::vector<std::int64_t> begins;
    std::int64_t total = 0;
    for (int i = 0; i < count; ++i) {
      begins.push_back(total);
      total += i % 41;
    }
    const std::vector<Array> arrays{bytes(total + 1, 9), bytes(total + 1, 0), bytes(total + 1, 0)};
    const auto after = testing::run_everywhere(
        arrays,
        [&](const Target& target, const std::vector<TensorRef>& t) {
          std::vector<CopyRegion> regions;
          for (int i = 0; i < count; ++i) {
            const std::int64_t length = i % 41;
            const std::int64_t begin = begins[static_cast<std::size_t>(i)];
            regions.push_back({at(t[0], begin), at(t[1], total - begin - length),
                               static_cast<std::size_t>(length)});
          }
          const std::ptrdiff_t shift = at(t[2], 0) - at(t[1], 0);
          kernels::multicast(target, regions, std::span(&shift, 1));
        },
        "multicast of many regions");
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = begins[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < i % 41; ++k) {
        const auto expected = arrays[0].get<std::uint8_t>(begin + k);
        ASSERT_EQ(after[1].get<std::uint8_t>(total - begin - i % 41 + k), expected) << count;
        ASSERT_EQ(after[2].get<std::uint8_t>(total - begin - i % 41 + k), expected) << count;
      }
    }
  }
}

TEST(MulticastKernelTest, RejectsTooManyCopies) {
  std::uint8_t from = 1;
  std::uint8_t to = 0;
  const CopyRegion region{&from, &to, 1};
  const std::vector<std::ptrdiff_t> shifts(kernels::kMaxMulticastCopies, 0);
  EXPECT_THROW(kernels::multicast(Target::cpu(), std::span(&region, 1), shifts), InvalidArgument);
  EXPECT_EQ(to, 0);
  kernels::multicast(Target::cpu(), {}, {});
}

}  // namespace
}  // namespace gantry
