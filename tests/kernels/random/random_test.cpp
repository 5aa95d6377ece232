#include "kernels/random/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gantry/kernels/philox.hpp>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::RandomPosition;
using kernels::Target;

constexpr RandomPosition kAt{0x0123456789abcdefu, 0xfedcba9876543210u};

std::uint32_t draw32(std::int64_t i) {
  const Philox4 words = philox4x32_10(kAt.seed, static_cast<std::uint64_t>(i / 4), kAt.offset);
  const std::uint32_t all[] = {words.x, words.y, words.z, words.w};
  return all[i % 4];
}

std::uint64_t draw64(std::int64_t i) {
  const Philox4 words = philox4x32_10(kAt.seed, static_cast<std::uint64_t>(i / 2), kAt.offset);
  return i % 2 == 0 ? std::uint64_t{words.y} << 32 | words.x
                    : std::uint64_t{words.w} << 32 | words.z;
}

Array uniform(const Array& out, double low, double high) {
  return run_everywhere(
      {out},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::uniform(target, t[0], kAt, low, high);
      },
      "uniform")[0];
}

Array normal(const Array& out, double mean, double deviation) {
  return run_everywhere(
      {out},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::normal(target, t[0], kAt, mean, deviation);
      },
      "normal")[0];
}

TEST(UniformKernelTest, UsesTheDocumentedBits) {
  const Array single = uniform(Array(f32, contiguous({1003})), 0, 1);
  const Array twice = uniform(Array(f64, contiguous({1003})), 0, 1);
  for (std::int64_t i = 0; i < 1003; ++i) {
    ASSERT_EQ(single.value(i), std::ldexp(draw32(i) >> 8, -24));
    ASSERT_EQ(twice.value(i), std::ldexp(static_cast<double>(draw64(i) >> 11), -53));
  }
}

TEST(UniformKernelTest, StaysBelowTheUpperBoundInEveryType) {
  for (const DType dtype : kFloatingTypes) {
    for (const auto& [low, high] :
         {std::pair(0.0, 1.0), std::pair(-3.0, 5.0), std::pair(1000.0, 1001.0)}) {
      const Array numbers = uniform(Array(dtype, contiguous({40000})), low, high);
      double sum = 0;
      for (std::int64_t i = 0; i < numbers.numel(); ++i) {
        ASSERT_GE(numbers.value(i), low) << dtype;
        ASSERT_LT(numbers.value(i), high) << dtype;
        sum += (numbers.value(i) - low) / (high - low);
      }
      // bf16 and f16 hold few numbers, or none but the bound, in the last interval.
      if (high < 1000) {
        EXPECT_NEAR(sum / 40000, 0.5, 0.01) << dtype;
      }
    }
  }
}

TEST(NormalKernelTest, IsBoxMullerOfTheDraws) {
  const Array single = normal(Array(f32, contiguous({10002})), 2, 3);
  const Array twice = normal(Array(f64, contiguous({10002})), 2, 3);
  constexpr double kTurn = 2 * 3.14159265358979323846;
  for (std::int64_t i = 0; i < 10002; i += 2) {
    const double unit = (draw32(i) + 0.5) * std::ldexp(1, -32);
    const double angle = kTurn * std::ldexp(draw32(i + 1), -32);
    const double radius = std::sqrt(-2 * std::log(unit));
    ASSERT_NEAR(single.value(i), 2 + 3 * radius * std::cos(angle), 6e-6);
    ASSERT_NEAR(single.value(i + 1), 2 + 3 * radius * std::sin(angle), 6e-6);
    const double unit64 = (static_cast<double>(draw64(i) >> 11) + 0.5) * std::ldexp(1, -53);
    const double angle64 = kTurn * std::ldexp(static_cast<double>(draw64(i + 1)), -64);
    const double radius64 = std::sqrt(-2 * std::log(unit64));
    ASSERT_NEAR(twice.value(i), 2 + 3 * radius64 * std::cos(angle64), 2e-14);
    ASSERT_NEAR(twice.value(i + 1), 2 + 3 * radius64 * std::sin(angle64), 2e-14);
  }
}

TEST(NormalKernelTest, HasTheMomentsOfTheNormalDistribution) {
  for (const DType dtype : kFloatingTypes) {
    const Array numbers = normal(Array(dtype, contiguous({200000})), 0, 1);
    double moments[4] = {};
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      double power = 1;
      for (double& moment : moments) moment += (power *= numbers.value(i)) / 200000;
    }
    EXPECT_NEAR(moments[0], 0, 0.01) << dtype;
    EXPECT_NEAR(moments[1], 1, 0.02) << dtype;
    EXPECT_NEAR(moments[2], 0, 0.05) << dtype;
    EXPECT_NEAR(moments[3], 3, 0.15) << dtype;
  }
}

TEST(RandintKernelTest, ScalesA64BitDraw) {
  for (const auto& [low, high] : {std::pair<std::int64_t, std::int64_t>(-7, 120),
                                  {0, 1},
                                  {INT64_MIN, INT64_MAX},
                                  {-1000000007, 1000000007}}) {
    for (const DType dtype : kAllTypes) {
      const Array numbers = run_everywhere(
          {Array(dtype, contiguous({1001}))},
          [&, low = low, high = high](const Target& target, const std::vector<TensorRef>& t) {
            kernels::randint(target, t[0], kAt, low, high);
          },
          "randint")[0];
      if (dtype != i64) continue;
      for (std::int64_t i = 0; i < numbers.numel(); ++i) {
        const auto range = static_cast<unsigned __int128>(static_cast<__int128>(high) - low);
        const auto offset = static_cast<std::uint64_t>(draw64(i) * range >> 64);
        ASSERT_EQ(numbers.get<std::int64_t>(i),
                  static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset));
      }
    }
  }
}

TEST(BernoulliKernelTest, ComparesADrawWithTheProbability) {
  for (const DType dtype : kAllTypes) {
    for (const DType probability : kFloatingTypes) {
      for (const Layout& layout : {contiguous({30, 41}), testing::expanded({30, 41})}) {
        std::vector<Array> input{Array(dtype, contiguous({30, 41})), Array(probability, layout)};
        fill_range(input[1], 4, 0, 1);
        dispatch(probability, [&]<class T>(TypeTag<T>) {
          input[1].set<T>(0, T(0.0f));
          input[1].set<T>(1, T(1.0f));
        });
        const std::vector<Array> arrays = run_everywhere(
            input,
            [](const Target& target, const std::vector<TensorRef>& t) {
              kernels::bernoulli(target, t[0], t[1], kAt);
            },
            "bernoulli");
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const double expected = std::ldexp(draw32(i), -32) < arrays[1].value(i) ? 1 : 0;
          ASSERT_EQ(arrays[0].value(i), expected) << dtype << ", p " << arrays[1].value(i);
        }
      }
    }
  }
}

TEST(RandomKernelTest, ElementsDependOnTheirIndexOnly) {
  const Shape sizes = {7, 6, 5};
  for (const DType dtype : kFloatingTypes) {
    const Array uniforms = uniform(Array(dtype, contiguous(sizes)), -1, 1);
    const Array normals = normal(Array(dtype, contiguous(sizes)), 0, 1);
    for (const Layout& layout : testing::output_layouts(sizes)) {
      const Array other_uniforms = uniform(Array(dtype, layout), -1, 1);
      const Array other_normals = normal(Array(dtype, layout), 0, 1);
      for (std::int64_t i = 0; i < sizes.product(); ++i) {
        ASSERT_EQ(other_uniforms.bits(i), uniforms.bits(i)) << dtype << " " << layout.name;
        ASSERT_EQ(other_normals.bits(i), normals.bits(i)) << dtype << " " << layout.name;
      }
    }
    // A longer tensor begins with the same numbers. A GPU has tiles of 2048 numbers.
    const Array longest = normal(Array(dtype, contiguous({20000})), 0, 1);
    for (std::int64_t i = 0; i < sizes.product(); ++i) ASSERT_EQ(longest.bits(i), normals.bits(i));
    for (const std::int64_t length : {1000, 2047, 2048, 2050, 4096, 8195, 19999}) {
      const Array longer = normal(Array(dtype, contiguous({length})), 0, 1);
      for (std::int64_t i = 0; i < length; ++i)
        ASSERT_EQ(longer.bits(i), longest.bits(i)) << length;
    }
  }
}

TEST(RandpermKernelTest, SortsPositionsByTheirDraw) {
  for (const std::int64_t n : {1, 2, 3, 1000, 8192, 8193, 70001}) {
    const Array numbers = run_everywhere(
        {Array(i64, contiguous({n}))},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::randperm(target, t[0], kAt);
        },
        "randperm")[0];
    std::vector<std::int64_t> expected(static_cast<std::size_t>(n));
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(),
                     [](std::int64_t a, std::int64_t b) { return draw64(a) < draw64(b); });
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(numbers.get<std::int64_t>(i), expected[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace
}  // namespace gantry::testing
