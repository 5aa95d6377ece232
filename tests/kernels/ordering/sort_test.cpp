#include "kernels/ordering/sort.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/ordering/binning.hpp"
#include "tests/kernels/ordering/order_oracle.hpp"
#include "tests/kernels/reductions/reduction_oracle.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// Lengths of every path: a part of a warp, one warp, one block, several blocks, several tiles of a
// selection.
const std::vector<std::int64_t> kLengths{1,   2,   4,   6,    9,    17,   33,   64,   65,    128,
                                         129, 289, 545, 1031, 2048, 2049, 4353, 8193, 16384, 40000};

template <class T>
std::vector<T> elements_of(const Array& in, const std::vector<std::int64_t>& fibre) {
  std::vector<T> elements;
  for (const std::int64_t i : fibre) elements.push_back(in.get<T>(i));
  return elements;
}

std::uint64_t stored_bits(const Array& array, std::int64_t i) {
  return array.dtype() == DType::bool_ ? std::uint64_t{array.bits(i) != 0} : array.bits(i);
}

// Sorts along `dim` and expects the first `count` elements of the oracle's order.
template <class T>
void expect_sorted(const Array& in, const Layout& out, int dim, bool descending) {
  const Shape& sizes = in.layout().sizes;
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<T>, out), Array(i64, out), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::sort(target, t[0], t[1], t[2], dim, descending);
      },
      in.layout().name);
  const auto fibres = members(sizes, 1u << dim);
  const auto written = members(out.sizes, 1u << dim);
  ASSERT_EQ(fibres.size(), written.size());
  for (std::size_t f = 0; f < fibres.size(); ++f) {
    const auto order = sorted_positions(elements_of<T>(in, fibres[f]), descending);
    for (std::size_t k = 0; k < written[f].size(); ++k) {
      ASSERT_EQ(arrays[1].get<std::int64_t>(written[f][k]), order[k])
          << in.layout().name << sizes << " dim " << dim << " fibre " << f << " at " << k;
      ASSERT_EQ(arrays[0].bits(written[f][k]),
                stored_bits(in, fibres[f][static_cast<std::size_t>(order[k])]))
          << in.layout().name << sizes << " dim " << dim << " at " << k;
    }
  }
}

TEST(SortKernelTest, SortsValuesAlone) {
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const std::int64_t length : kLengths) {
        for (const Layout& layout : {contiguous({length}), testing::shifted({length})}) {
          Array in(dtype, layout);
          fill_range(in, static_cast<std::uint32_t>(length), is_floating_point(dtype) ? -9 : 0, 9);
          const std::vector<Array> arrays = run_everywhere(
              {Array(dtype, contiguous({length})), in},
              [](const Target& target, const std::vector<TensorRef>& t) {
                kernels::sort_values(target, t[0], t[1]);
              },
              in.layout().name);
          const auto fibre = members({length}, 1)[0];
          const auto order = sorted_positions(elements_of<T>(in, fibre), false);
          for (std::size_t k = 0; k < order.size(); ++k) {
            ASSERT_EQ(arrays[0].value(static_cast<std::int64_t>(k)),
                      in.value(fibre[static_cast<std::size_t>(order[k])]))
                << dtype << " " << layout.name << length << " at " << k;
          }
        }
      }
    });
  }
}

// The bits of all NaNs, in order.
template <class T>
std::vector<std::uint64_t> nans_of(const Array& array) {
  std::vector<std::uint64_t> bits;
  for (std::int64_t i = 0; i < array.numel(); ++i) {
    if (array.value(i) != array.value(i)) bits.push_back(array.bits(i));
  }
  std::sort(bits.begin(), bits.end());
  return bits;
}

// NaNs with and without a sign: none, one, some, or nothing else.
TEST(SortKernelTest, SortsValuesAloneWithNansLast) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const DType dtype : {f16, bf16, f32, f64}) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      if constexpr (is_floating_point(dtype_of<T>)) {
        for (const std::int64_t length : {100, 8193, 16384, 16385, 40000}) {
          for (const std::int64_t apart : {std::int64_t{1}, std::int64_t{3}, length}) {
            Array in(dtype, contiguous({length}));
            fill_unordered(in, static_cast<std::uint32_t>(length), true);
            const T nan(std::numeric_limits<float>::quiet_NaN());
            for (std::int64_t i = 0; i < length; i += apart) in.set(i, i % 2 == 0 ? T(-nan) : nan);
            std::vector<Array> arrays{Array(dtype, contiguous({length})), in};
            testing::run_on_device(arrays,
                                   [](const Target& target, const std::vector<TensorRef>& t) {
                                     kernels::sort_values(target, t[0], t[1]);
                                   });
            const auto fibre = members({length}, 1)[0];
            const auto order = sorted_positions(elements_of<T>(in, fibre), false);
            const std::vector<std::uint64_t> nans = nans_of<T>(in);
            ASSERT_EQ(nans_of<T>(arrays[0]), nans) << dtype << " " << length << " " << apart;
            for (std::size_t k = 0; k + nans.size() < order.size(); ++k) {
              ASSERT_EQ(arrays[0].bits(static_cast<std::int64_t>(k)), in.bits(order[k]))
                  << dtype << " " << length << " " << apart << " at " << k;
            }
          }
        }
      }
    });
  }
}

TEST(SortKernelTest, FirstOfRunsTakesOneElementOfEachRun) {
  std::uint32_t seed = 900;
  for (const DType dtype : testing::kAllTypes) {
    for (const std::int64_t length : {1, 2, 33, 4097, 100000}) {
      for (const bool has_ties : {false, true}) {
        Array in(dtype, contiguous({length}));
        fill_unordered(in, ++seed, has_ties);
        const std::vector<Array> arrays = run_everywhere(
            {Array(dtype, contiguous({length})), Array(i64, contiguous({1})), in},
            [](const Target& target, const std::vector<TensorRef>& t) {
              kernels::first_of_runs(target, t[0], t[1], t[2]);
            },
            "runs");
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < length; ++i) {
          const bool is_equal = dtype == i64 ? i > 0 && in.bits(i) == in.bits(i - 1)
                                             : i > 0 && in.value(i) == in.value(i - 1);
          if (is_equal) continue;
          ASSERT_EQ(arrays[0].bits(count), in.bits(i)) << dtype << " " << length << " at " << i;
          ++count;
        }
        ASSERT_EQ(arrays[1].get<std::int64_t>(0), count) << dtype << " " << length;
      }
    }
  }
}

TEST(SortKernelTest, SortsEveryDTypeInEveryLayout) {
  std::uint32_t seed = 1;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const Layout& layout : input_layouts({5, 7, 6})) {
        ++seed;
        Array in(dtype, layout);
        fill_unordered(in, seed, seed % 2 == 0);
        for (const int dim : {0, 1, 2}) {
          for (const Layout& out : testing::output_layouts(layout.sizes)) {
            expect_sorted<T>(in, out, dim, seed % 3 == 0);
          }
        }
      }
    });
  }
}

TEST(SortKernelTest, SortsFibresOfEveryLength) {
  std::uint32_t seed = 100;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const std::int64_t length : kLengths) {
        for (const bool descending : {false, true}) {
          const std::int64_t fibres = length > 3000 ? 2 : 3;
          ++seed;
          Array rows(dtype, contiguous({fibres, length}));
          fill_unordered(rows, seed, seed % 3 == 0);
          expect_sorted<T>(rows, contiguous({fibres, length}), 1, descending);
          ++seed;
          Array columns(dtype, contiguous({length, fibres}));
          fill_unordered(columns, seed, seed % 3 == 0);
          expect_sorted<T>(columns, contiguous({length, fibres}), 0, descending);
          ++seed;
          Array one(dtype, contiguous({length}));
          fill_unordered(one, seed, seed % 3 == 0);
          expect_sorted<T>(one, contiguous({length}), 0, descending);
        }
      }
    });
  }
}

TEST(SortKernelTest, WritesTheFirstElementsOfTheOrder) {
  std::uint32_t seed = 300;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const std::int64_t length : kLengths) {
        for (const std::int64_t count : {1, 2, 100, 2048, 2049}) {
          if (count > length) continue;
          const bool descending = ++seed % 2 == 0;
          Array in(dtype, contiguous({2, length}));
          fill_unordered(in, seed, seed % 3 == 0);
          expect_sorted<T>(in, contiguous({2, count}), 1, descending);
        }
      }
    });
  }
}

TEST(SortKernelTest, EqualElementsKeepTheirOrder) {
  for (const std::int64_t length : kLengths) {
    Array in(f32, contiguous({2, length}));
    for (std::int64_t i = 0; i < 2 * length; ++i) in.set<float>(i, i % 2 == 0 ? 0.0f : -0.0f);
    expect_sorted<float>(in, contiguous({2, length}), 1, false);
    expect_sorted<float>(in, contiguous({2, length}), 1, true);
    expect_sorted<float>(in, contiguous({2, (length + 1) / 2}), 1, true);
  }
}

// Columns of enough elements are copied to dense fibres, and their results back.
TEST(SortKernelTest, ColumnsOfManyElements) {
  for (const Shape& sizes : {Shape{300, 1000}, Shape{5, 70, 800}}) {
    for (int dim = 0; dim + 1 < sizes.size(); ++dim) {
      Array in(bf16, contiguous(sizes));
      fill_unordered(in, 11, false);
      expect_sorted<bfloat16>(in, contiguous(sizes), dim, dim == 0);
      Shape few = sizes;
      few[dim] = 3;
      expect_sorted<bfloat16>(in, contiguous(few), dim, false);
    }
  }
  Array single(bf16, contiguous({300, 1, 900}));
  fill_unordered(single, 12, true);
  expect_sorted<bfloat16>(single, contiguous({300, 1, 900}), 1, true);
}

// Integers in a small range share a word with their places.
TEST(SortKernelTest, IntegersInASmallRange) {
  for (const std::int64_t length : {100, 300, 5000}) {
    for (const std::int64_t high : {1, 2, 65535, 65536, 70000}) {
      Array in(i64, contiguous({2, length}));
      for (std::int64_t i = 0; i < 2 * length; ++i)
        in.set<std::int64_t>(i, i % 7 == 3 ? high - 40 : i * 7919 % (high + 1) - 40);
      in.set<std::int64_t>(0, -40);
      expect_sorted<std::int64_t>(in, contiguous({2, length}), 1, length == 300);
    }
  }
}

TEST(SortKernelTest, ManyFibresOfMediumLength) {
  Array in(i16, contiguous({300, 2100}));
  fill_unordered(in, 7, false);
  expect_sorted<std::int16_t>(in, contiguous({300, 2100}), 1, true);
  expect_sorted<std::int16_t>(in, contiguous({300, 9}), 1, false);
}

TEST(SortKernelTest, ANonZeroBoolByteCountsAsOne) {
  const auto [loose, strict] = testing::loose_and_strict_bools(contiguous({2, 3000}));
  const auto run = [](const Array& in) {
    return run_everywhere(
        {Array(bool_, contiguous({2, 3000})), Array(i64, contiguous({2, 3000})), in},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::sort(target, t[0], t[1], t[2], 1, false);
        },
        "bool");
  };
  const std::vector<Array> a = run(loose);
  const std::vector<Array> b = run(strict);
  EXPECT_TRUE(a[0].bytes() == b[0].bytes());
  EXPECT_TRUE(a[1].bytes() == b[1].bytes());
}

TEST(SortKernelTest, SelectsTheElementOfARank) {
  std::uint32_t seed = 500;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const std::int64_t length : kLengths) {
        for (const int dim : {0, 1}) {
          const Shape sizes = dim == 0 ? Shape{length, 3} : Shape{3, length};
          const Shape out = reduced_sizes(sizes, 1u << dim);
          ++seed;
          Array in(dtype, contiguous(sizes));
          fill_unordered(in, seed, seed % 2 == 0);
          Array ranks(i64, contiguous(out));
          for (std::int64_t f = 0; f < 3; ++f) ranks.set<std::int64_t>(f, f * (length - 1) / 2);
          const bool has_ranks = seed % 3 != 0;
          const std::vector<Array> arrays = run_everywhere(
              {Array(dtype, contiguous(out)), Array(i64, contiguous(out)), in, ranks},
              [&](const Target& target, const std::vector<TensorRef>& t) {
                kernels::select_rank(target, t[0], t[1], t[2], dim, length / 3,
                                     has_ranks ? t[3] : TensorRef{});
              },
              "select");
          const auto fibres = members(sizes, 1u << dim);
          for (std::size_t f = 0; f < fibres.size(); ++f) {
            const auto order = sorted_positions(elements_of<T>(in, fibres[f]), false);
            const std::int64_t rank =
                has_ranks ? static_cast<std::int64_t>(f) * (length - 1) / 2 : length / 3;
            const std::int64_t expected = order[static_cast<std::size_t>(rank)];
            const auto at = static_cast<std::int64_t>(f);
            ASSERT_EQ(arrays[1].get<std::int64_t>(at), expected) << sizes << " rank " << rank;
            ASSERT_EQ(arrays[0].bits(at),
                      stored_bits(in, fibres[f][static_cast<std::size_t>(expected)]));
          }
        }
      }
    });
  }
}

template <class T>
void expect_cumulative(const Array& in, const Layout& out, int dim, bool largest) {
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<T>, out), Array(i64, out), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::cumulative_extremum(target, largest, t[0], t[1], t[2], dim);
      },
      in.layout().name);
  for (const auto& fibre : members(in.layout().sizes, 1u << dim)) {
    std::size_t best = 0;
    const std::vector<T> elements = elements_of<T>(in, fibre);
    for (std::size_t k = 0; k < fibre.size(); ++k) {
      const T a = elements[k];
      const T b = elements[best];
      // Not behind the best one. A NaN is the best of either.
      const bool is_nan = !(a == a);
      const bool best_is_nan = !(b == b);
      if (is_nan || (!best_is_nan && (largest ? !(a < b) : !(b < a)))) best = k;
      ASSERT_EQ(arrays[1].get<std::int64_t>(fibre[k]), static_cast<std::int64_t>(best))
          << in.layout().name << in.layout().sizes << " dim " << dim << " at " << k;
      ASSERT_EQ(arrays[0].bits(fibre[k]), stored_bits(in, fibre[best]));
    }
  }
}

TEST(SortKernelTest, RunningExtremaOfEveryDTypeAndLayout) {
  std::uint32_t seed = 700;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const Layout& layout : input_layouts({5, 30, 6})) {
        ++seed;
        Array in(dtype, layout);
        fill_unordered(in, seed, seed % 2 == 0);
        for (const int dim : {0, 1, 2}) {
          for (const Layout& out : testing::output_layouts(layout.sizes)) {
            expect_cumulative<T>(in, out, dim, seed % 3 == 0);
          }
        }
      }
    });
  }
}

TEST(SortKernelTest, RunningExtremaOfEveryLength) {
  std::uint32_t seed = 800;
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (const std::int64_t length : {1, 16, 17, 255, 256, 257, 2048, 2049, 6000}) {
        for (const int dim : {0, 1}) {
          const Shape sizes = dim == 0 ? Shape{length, 3} : Shape{3, length};
          ++seed;
          Array in(dtype, contiguous(sizes));
          fill_unordered(in, seed, seed % 2 == 0);
          expect_cumulative<T>(in, contiguous(sizes), dim, seed % 3 == 0);
        }
      }
    });
  }
  // More tiles than a block has threads.
  Array in(i32, contiguous({2, 600000}));
  for (std::int64_t i = 0; i < 1200000; ++i)
    in.set<std::int32_t>(i, static_cast<std::int32_t>(i % 1000 + i / 10000));
  expect_cumulative<std::int32_t>(in, contiguous({2, 600000}), 1, true);
  // A thread for each column.
  Array columns(u8, contiguous({20, 20000}));
  fill_unordered(columns, 3, true);
  expect_cumulative<std::uint8_t>(columns, contiguous({20, 20000}), 0, false);
}

}  // namespace
}  // namespace gantry::testing
