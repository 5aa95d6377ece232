// Scans and reductions whose partial results exceed the accumulator though no running value does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/reductions/fibre_plan.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::Reduction;
using kernels::ScanOp;
using kernels::Target;

// The exponent of the largest power of two of T.
template <class T>
int largest_exponent() {
  return std::is_same_v<T, float16> ? 15 : std::is_same_v<T, double> ? 1023 : 127;
}

// Elements whose running sums are 0 or one number near the end of the range, with either sign.
// Equal signs follow each other often, so that sums of parts exceed the range.
template <class T>
std::vector<double> summands(std::int64_t count, std::mt19937& random) {
  const double large = std::ldexp(1.5, largest_exponent<T>());
  std::vector<double> result;
  int running = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    int step = static_cast<int>(random() % 3) - 1;
    if (std::abs(running + step) > 1) step = 0;
    running += step;
    result.push_back(step * large);
  }
  return result;
}

// Powers of two whose running products stay within the range, 0 from element `zero` on.
template <class T>
std::vector<double> factors(std::int64_t count, std::int64_t zero, std::mt19937& random) {
  const int high = largest_exponent<T>() - 2;
  const int low = std::is_same_v<T, float16> ? -12 : -10;
  std::vector<double> result;
  int exponent = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const int next = k < zero ? low + static_cast<int>(random() % (high - low + 1)) : high;
    // The exponents of elements are limited, too.
    const int step = k < zero ? std::max(low, std::min(high, next - exponent)) : high;
    exponent = k < zero ? exponent + step : exponent;
    result.push_back(k == zero ? 0 : std::ldexp(random() % 2 == 0 ? 1.0 : -1.0, step));
  }
  return result;
}

template <class T>
Array array_of(const Layout& layout, const std::vector<std::vector<std::int64_t>>& fibres,
               const std::vector<std::vector<double>>& elements) {
  Array result(dtype_of<T>, layout);
  for (std::size_t f = 0; f < fibres.size(); ++f) {
    for (std::size_t k = 0; k < fibres[f].size(); ++k) {
      result.set<T>(fibres[f][k], static_cast<T>(elements[f][k]));
    }
  }
  return result;
}

// The elements of every fibre along `dim`.
template <class T>
std::vector<std::vector<double>> elements_of(std::size_t fibres, std::int64_t length,
                                             bool product) {
  std::mt19937 random(static_cast<std::uint32_t>(length));
  std::vector<std::vector<double>> result;
  for (std::size_t f = 0; f < fibres; ++f) {
    // Some fibres have a zero first, some late, some none, and some nothing unusual at all.
    const std::int64_t zero = f % 4 == 0 ? 0 : f % 4 == 1 ? length / 2 : length;
    if (f % 4 == 3) {
      result.emplace_back(static_cast<std::size_t>(length), product ? 1.0 : 0.0);
    } else {
      result.push_back(product ? factors<T>(length, zero, random) : summands<T>(length, random));
    }
  }
  return result;
}

// Asserts that each result is the exact running value, which all of these numbers have.
template <class T>
void expect_scans(bool product, const Layout& layout, int dim) {
  const auto fibres = members(layout.sizes, 1u << dim);
  const std::int64_t length = layout.sizes[dim];
  const auto elements = elements_of<T>(fibres.size(), length, product);
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<T>, contiguous(layout.sizes)), array_of<T>(layout, fibres, elements)},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], dim);
      },
      layout.name);
  for (std::size_t f = 0; f < fibres.size(); ++f) {
    double running = product ? 1 : 0;
    for (std::size_t k = 0; k < fibres[f].size(); ++k) {
      running = product ? running * elements[f][k] : running + elements[f][k];
      ASSERT_EQ(arrays[0].value(fibres[f][k]), running)
          << dtype_of<T> << (product ? " product " : " sum ") << layout.name << layout.sizes
          << " fibre " << f << " at " << k;
    }
  }
}

template <class T>
void expect_scans_of_every_layout(std::int64_t length) {
  for (const bool product : {false, true}) {
    expect_scans<T>(product, contiguous({5, length}), 1);
    expect_scans<T>(product, testing::shifted({3, length}), 1);
    expect_scans<T>(product, testing::sliced({3, length}), 1);
    expect_scans<T>(product, testing::transposed({3, length}), 1);
    expect_scans<T>(product, contiguous({length, 21}), 0);
    expect_scans<T>(product, contiguous({2, length, 3}), 1);
    if (length <= 300) expect_scans<T>(product, contiguous({11, length}), 1);
  }
}

TEST(OverflowTest, ScansAreFiniteWhereRunningValuesAre) {
  for (const std::int64_t length : {1, 2, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257, 300, 1000}) {
    expect_scans_of_every_layout<float16>(length);
    expect_scans_of_every_layout<bfloat16>(length);
    expect_scans_of_every_layout<float>(length);
    expect_scans_of_every_layout<double>(length);
  }
}

TEST(OverflowTest, ScansOfSeveralTilesAreFiniteWhereRunningValuesAre) {
  for (const std::int64_t length : {4095, 4096, 4097, 8192, 12301}) {
    expect_scans_of_every_layout<bfloat16>(length);
    expect_scans_of_every_layout<float>(length);
    expect_scans_of_every_layout<double>(length);
  }
  expect_scans<double>(false, contiguous({2, 70001}), 1);
  expect_scans<bfloat16>(false, contiguous({2, 70001}), 1);
  expect_scans<float>(true, contiguous({1, 70001}), 1);
}

// The tiles before the one that fails end with a value that is not 0.
template <class T>
void expect_tiles_continue() {
  const double large = std::ldexp(1.5, largest_exponent<T>());
  const std::int64_t length = 3 * kernels::kScanTile;
  for (const std::int64_t failing : {kernels::kScanTile, 2 * kernels::kScanTile}) {
    std::vector<double> elements(static_cast<std::size_t>(length), 0.0);
    elements[10] = -large;
    // The total of these two exceeds the range.
    elements[static_cast<std::size_t>(failing) + 5] = large;
    elements[static_cast<std::size_t>(failing) + 6] = large;
    for (const Shape& sizes : {Shape{1, length}, Shape{length, 1}}) {
      const int dim = sizes[0] == 1 ? 1 : 0;
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype_of<T>, contiguous(sizes)),
           array_of<T>(contiguous(sizes), members(sizes, 1U << dim), {elements})},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::scan(target, ScanOp::sum, t[0], t[1], dim);
          },
          "continued");
      double running = 0;
      for (std::int64_t k = 0; k < length; ++k) {
        running += elements[static_cast<std::size_t>(k)];
        ASSERT_EQ(arrays[0].value(k), running) << dtype_of<T> << " " << failing << " at " << k;
      }
    }
  }
}

TEST(OverflowTest, ATileThatFailsContinuesFromTheTileBefore) {
  expect_tiles_continue<double>();
  expect_tiles_continue<bfloat16>();
}

// The kernel of long rows, which a GPU uses for more tiles than it has blocks.
TEST(OverflowTest, ScansOfManyTilesAreFiniteWhereRunningValuesAre) {
  const std::int64_t length = 4096 * 1100 + 8;
  const auto scan = []<class T>(TypeTag<T>, bool product, std::int64_t count, std::int64_t first) {
    Array in(dtype_of<T>, contiguous({count}));
    for (std::int64_t i = 0; i < count; ++i) in.set<T>(i, static_cast<T>(product ? 1.0 : 0.0));
    std::mt19937 random(1);
    const std::vector<double> middle =
        product ? factors<T>(9000, 8, random) : summands<T>(9000, random);
    for (std::int64_t k = 0; k < 9000; ++k) {
      in.set<T>(first + k, static_cast<T>(middle[static_cast<std::size_t>(k)]));
    }
    const std::vector<Array> arrays = run_everywhere(
        {Array(dtype_of<T>, contiguous({count})), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], 0);
        },
        "many tiles");
    double running = product ? 1 : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      running = product ? running * in.value(i) : running + in.value(i);
      ASSERT_EQ(arrays[0].value(i), running) << i;
    }
  };
  for (const std::int64_t first : {std::int64_t{0}, length / 2, length - 9000}) {
    scan(TypeTag<bfloat16>{}, false, length, first);
    scan(TypeTag<float>{}, true, length, first);
  }
}

// After a running value that is not finite, the results equal the results from left to right.
TEST(OverflowTest, WhatFollowsAnInfinityIsAsLeftToRight) {
  const std::int64_t length = 9000;
  for (const bool product : {false, true}) {
    for (const std::int64_t at : {3, 20, 4090, 4100, 8999}) {
      for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        std::mt19937 random(7);
        std::vector<double> elements =
            product ? factors<double>(length, length, random) : summands<double>(length, random);
        elements[static_cast<std::size_t>(at)] = value;
        if (at + 2000 < length) elements[static_cast<std::size_t>(at + 2000)] = product ? 0 : value;
        const auto fibres = members({1, length}, 2);
        const std::vector<Array> arrays = run_everywhere(
            {Array(f64, contiguous({1, length})),
             array_of<double>(contiguous({1, length}), fibres, {elements})},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], 1);
            },
            "infinity");
        double running = product ? 1 : 0;
        for (std::int64_t k = 0; k < length; ++k) {
          const double element = elements[static_cast<std::size_t>(k)];
          running = product ? running * element : running + element;
          const double got = arrays[0].value(k);
          ASSERT_TRUE(std::isnan(running) ? std::isnan(got) : got == running)
              << "at " << k << ": expected " << running << ", but got " << got;
        }
      }
    }
  }
}

// The totals of groups stay within the range of the accumulator, the running products do not.
template <class T>
void expect_zeros_after_underflow() {
  const double large = std::ldexp(1.0, sizeof(T) == 2 ? 7 : 60);
  std::vector<double> elements(16 * 15, 1.0);
  elements.insert(elements.end(), 32, 1 / large);
  elements.insert(elements.end(), 64, large);
  for (const Shape& sizes : {Shape{1, 336}, Shape{336, 1}}) {
    const unsigned mask = sizes[0] == 1 ? 2 : 1;
    const std::vector<Array> arrays = run_everywhere(
        {Array(dtype_of<T>, contiguous(sizes)),
         array_of<T>(contiguous(sizes), members(sizes, mask), {elements})},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, ScanOp::product, t[0], t[1], mask == 2 ? 1 : 0);
        },
        "underflow");
    for (std::int64_t k = 272; k < 336; ++k) ASSERT_EQ(arrays[0].value(k), 0) << dtype_of<T> << k;
  }
}

TEST(OverflowTest, ProductsThatBecomeZeroStayZero) {
  expect_zeros_after_underflow<float16>();
  expect_zeros_after_underflow<bfloat16>();
  expect_zeros_after_underflow<float>();
  expect_zeros_after_underflow<double>();
}

// A result may take the place of its elements also where a scan reads them again.
TEST(OverflowTest, RestartedScansInPlace) {
  std::mt19937 random(5);
  const std::vector<double> elements = summands<double>(9001, random);
  const std::vector<Array> arrays = run_everywhere(
      {array_of<double>(contiguous({1, 9001}), members({1, 9001}, 2), {elements})},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, ScanOp::sum, t[0], t[0], 1);
      },
      "in place");
  double running = 0;
  for (std::int64_t k = 0; k < 9001; ++k) {
    running += elements[static_cast<std::size_t>(k)];
    ASSERT_EQ(arrays[0].value(k), running) << k;
  }
}

template <class T>
void expect_reduces(Reduction op, const Layout& layout, unsigned mask) {
  const bool product = op == Reduction::prod;
  const auto outputs = members(layout.sizes, mask);
  const auto length = static_cast<std::int64_t>(outputs[0].size());
  auto elements = elements_of<T>(outputs.size(), length, product);
  if (product) {  // a zero is anywhere, or factors and their inverses follow each other
    const double large = std::ldexp(1.0, largest_exponent<T>() - 2);
    for (std::size_t o = 2; o < elements.size(); o += 4) {
      for (std::size_t k = 0; k < elements[o].size(); ++k) {
        elements[o][k] = k % 2 == 0 ? large : 1 / large;
      }
    }
  }
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<T>, contiguous(reduced_sizes(layout.sizes, mask))),
       array_of<T>(layout, outputs, elements)},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::reduce(target, op, t[0], t[1]);
      },
      layout.name);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    double expected = product ? 1 : 0;
    for (const double element : elements[o]) {
      expected = product ? expected * element : expected + element;
    }
    ASSERT_EQ(arrays[0].value(static_cast<std::int64_t>(o)), expected)
        << dtype_of<T> << (product ? " product " : " sum ") << layout.name << layout.sizes
        << " mask " << mask << " output " << o;
  }
}

template <class T>
void expect_reduces_every_layout(std::int64_t length) {
  for (const Reduction op : {Reduction::sum, Reduction::prod}) {
    expect_reduces<T>(op, contiguous({5, length}), 2);
    expect_reduces<T>(op, testing::shifted({3, length}), 2);
    expect_reduces<T>(op, testing::sliced({3, length}), 2);
    expect_reduces<T>(op, testing::transposed({3, length}), 2);
    expect_reduces<T>(op, contiguous({length, 5}), 1);
    expect_reduces<T>(op, contiguous({length, 64}), 1);
    expect_reduces<T>(op, contiguous({2, length, 3}), 0b101);
  }
}

TEST(OverflowTest, ReductionsAreFiniteWhereRunningValuesAre) {
  for (const std::int64_t length : {1, 2, 3, 4, 17, 40, 64, 127, 128, 129, 257, 1000, 1025}) {
    expect_reduces_every_layout<float16>(length);
    expect_reduces_every_layout<bfloat16>(length);
    expect_reduces_every_layout<float>(length);
    expect_reduces_every_layout<double>(length);
  }
}

TEST(OverflowTest, ReductionsOfSeveralChunksAreFiniteWhereRunningValuesAre) {
  for (const std::int64_t length : {16383, 16384, 16385, 33001}) {
    for (const Reduction op : {Reduction::sum, Reduction::prod}) {
      expect_reduces<float>(op, contiguous({4, length}), 2);
      expect_reduces<bfloat16>(op, contiguous({4, length}), 2);
      expect_reduces<double>(op, testing::sliced({4, length}), 2);
      expect_reduces<float>(op, contiguous({length, 7}), 1);
      expect_reduces<double>(op, contiguous({length, 20}), 1);
      expect_reduces<float>(op, contiguous({3, length, 2}), 0b110);
    }
  }
}

TEST(OverflowTest, WhatIsNotFiniteStays) {
  for (const std::int64_t length : {40, 16384 * 2 + 3}) {
    for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      for (const Reduction op : {Reduction::sum, Reduction::prod}) {
        Array in(f32, contiguous({length}));
        for (std::int64_t i = 0; i < length; ++i) in.set<float>(i, 1.0F);
        in.set<float>(length - 2, static_cast<float>(value));
        const std::vector<Array> arrays = run_everywhere(
            {Array(f32, contiguous({1})), in},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::reduce(target, op, t[0], t[1]);
            },
            "not finite");
        const double got = arrays[0].value(0);
        EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << got;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
