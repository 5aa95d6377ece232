#include "kernels/indexing/compaction.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/fill_integers.hpp"
#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// A mask in which about one element of `n` is zero.
void fill_mask(Array& mask, std::uint32_t seed, int n) { fill_integers(mask, seed, 0, n); }

bool is_set(const Array& mask, std::int64_t i) {
  return dispatch(mask.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>)
      return mask.get<std::uint8_t>(i) != 0;
    else
      return static_cast<double>(mask.get<T>(i)) != 0;
  });
}

std::vector<std::int64_t> selected(const Array& mask) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < mask.numel(); ++i) {
    if (is_set(mask, i)) result.push_back(i);
  }
  return result;
}

TEST(CompactionTest, ASelectionHasTheBitsOfEveryLayoutAndSumsOfItsTiles) {
  for (const DType dtype : testing::kAllTypes) {
    std::vector<Layout> layouts = testing::input_layouts({3, 70, 45});
    // Ends within a word, at one, within a tile of several, and at a tile.
    for (const std::int64_t size : {1, 31, 64, 4095, 4096, 4097, 8192 + 65, 40 * 4096}) {
      layouts.push_back(contiguous({size}));
      layouts.push_back(testing::shifted({size}));
    }
    for (const Layout& layout : layouts) {
      Array mask(dtype, layout);
      fill_mask(mask, 1, 2);
      const std::int64_t size = kernels::selection_size(mask.numel());
      const std::vector<Array> arrays = run_everywhere(
          {Array(i64, contiguous({size})), mask},
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::read_mask(target, t[0], t[1]);
          },
          layout.name);
      const std::int64_t words = kernels::selection_words(mask.numel());
      std::int64_t sum = 0;
      std::uint64_t bits = 0;
      for (std::int64_t i = 0; i < mask.numel(); ++i) {
        bits |= std::uint64_t{is_set(mask, i)} << (i % 64);
        sum += is_set(mask, i) ? 1 : 0;
        const bool ends = i + 1 == mask.numel();
        if ((i + 1) % 64 == 0 || ends) {
          ASSERT_EQ(static_cast<std::uint64_t>(arrays[0].get<std::int64_t>(i / 64)), bits)
              << layout.name << i;
          bits = 0;
        }
        if ((i + 1) % kernels::kCompactionTile == 0 || ends) {
          ASSERT_EQ(arrays[0].get<std::int64_t>(words + i / kernels::kCompactionTile), sum)
              << layout.name << i;
        }
      }
    }
  }
}

TEST(CompactionTest, CoordinatesAreInRowMajorOrder) {
  for (const DType dtype : testing::kAllTypes) {
    for (const Layout& layout : testing::input_layouts({7, 30, 45})) {
      Array mask(dtype, layout);
      fill_mask(mask, 2, 2);
      const std::vector<std::int64_t> wanted = selected(mask);
      const auto count = static_cast<std::int64_t>(wanted.size());
      const std::int64_t size = kernels::selection_size(mask.numel());
      const std::vector<Array> arrays = run_everywhere(
          {Array(i64, contiguous({size})), mask, Array(i64, testing::transposed({count, 3}))},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::read_mask(target, t[0], t[1]);
            kernels::write_coordinates(target, t[2], t[1], t[0], count);
          },
          layout.name);
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t i = wanted[static_cast<std::size_t>(r)];
        ASSERT_EQ(arrays[2].get<std::int64_t>(3 * r), i / (30 * 45));
        ASSERT_EQ(arrays[2].get<std::int64_t>(3 * r + 1), i / 45 % 30);
        ASSERT_EQ(arrays[2].get<std::int64_t>(3 * r + 2), i % 45);
      }
    }
  }
}

TEST(CompactionTest, OffsetsArePackedAndStopAtTheLimit) {
  Array mask(bool_, contiguous({91, 101}));
  fill_mask(mask, 3, 2);
  const std::vector<std::int64_t> wanted = selected(mask);
  const auto count = static_cast<std::int64_t>(wanted.size());
  const std::int64_t strides[] = {1000, 3};
  Array offsets(i64, contiguous({count}));
  for (std::int64_t r = 0; r < count; ++r) offsets.set<std::int64_t>(r, -7);
  const std::vector<Array> arrays = run_everywhere(
      {Array(i64, contiguous({kernels::selection_size(mask.numel())})), mask, offsets},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::read_mask(target, t[0], t[1]);
        kernels::write_offsets(target, t[2], t[1], strides, t[0], count - 2);
      },
      "offsets");
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t i = wanted[static_cast<std::size_t>(r)];
    const std::int64_t offset = i / 101 * 1000 + i % 101 * 3;
    ASSERT_EQ(arrays[2].get<std::int64_t>(r), r < count - 2 ? offset : -7);
  }
}

void expect_packed(DType dtype, const Layout& mask_layout, const Layout& layout) {
  Array mask(u8, mask_layout);
  fill_mask(mask, 4, 2);
  Array data(dtype, layout);
  fill_random(data, 5);
  const std::vector<std::int64_t> wanted = selected(mask);
  const auto count = static_cast<std::int64_t>(wanted.size());
  Array source(dtype, testing::sliced({count}));
  fill_random(source, 6);
  const std::vector<Array> arrays = run_everywhere(
      {Array(i64, contiguous({kernels::selection_size(mask.numel())})), mask, data,
       Array(dtype, contiguous({count})), source},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::read_mask(target, t[0], t[1]);
        kernels::pack_masked("pack", target, t[3], t[2], t[1], t[0], count);
        kernels::unpack_masked("unpack", target, t[2], t[4], t[1], t[0], count);
      },
      layout.name);
  std::vector<bool> written(static_cast<std::size_t>(data.numel()), false);
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t i = wanted[static_cast<std::size_t>(r)];
    ASSERT_EQ(arrays[3].bits(r), data.bits(i)) << layout.name;
    ASSERT_EQ(arrays[2].bits(i), source.bits(r)) << layout.name;
    written[static_cast<std::size_t>(i)] = true;
  }
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    if (written[static_cast<std::size_t>(i)]) continue;
    ASSERT_EQ(arrays[2].bits(i), data.bits(i));
  }
}

TEST(CompactionTest, PacksAndUnpacksElementsOfEverySize) {
  for (const DType dtype : {u8, f16, i32, f64}) {
    for (const Layout& layout : testing::output_layouts({80, 90})) {
      expect_packed(dtype, testing::transposed({80, 90}), layout);
      expect_packed(dtype, contiguous({80, 90}), layout);  // a GPU reads groups of elements
    }
  }
}

}  // namespace
}  // namespace gantry::testing
