#include "kernels/layout/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/kernels/kernel_arrays.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// The f16 or bf16 nearest to `exact`; ties go to even.
template <class T>
T nearest(long double exact) {
  if (exact == 0 || !std::isfinite(exact)) return T(static_cast<float>(exact));
  constexpr int kBits = std::is_same_v<T, float16> ? 11 : 8;
  constexpr int kLeastExponent = std::is_same_v<T, float16> ? -14 : -126;
  const int unit = std::max(std::ilogb(exact), kLeastExponent) - (kBits - 1);
  return T(static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(exact, -unit)), unit)));
}

// `value` converted to T by the rules of copy.hpp.
template <class T, class From>
T converted(From value) {
  if constexpr (std::is_same_v<T, From>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<double>(value) != 0;
  } else if constexpr (is_floating_point(dtype_of<T>)) {
    if constexpr (sizeof(T) == 2 && is_floating_point(dtype_of<From>))
      return nearest<T>(static_cast<long double>(static_cast<double>(value)));
    else if constexpr (sizeof(T) == 2)
      return nearest<T>(static_cast<long double>(value));
    else
      return static_cast<T>(value);
  } else if constexpr (is_floating_point(dtype_of<From>)) {
    const auto wide = static_cast<long double>(static_cast<double>(value));
    if (std::isnan(wide)) return 0;
    const long double low = std::numeric_limits<T>::lowest();
    const long double high = std::numeric_limits<T>::max();
    return static_cast<T>(std::trunc(wide) < low    ? low
                          : std::trunc(wide) > high ? high
                                                    : std::trunc(wide));
  } else {
    return static_cast<T>(value);
  }
}

// The dims of a dense array in another order: dim d of the layout is dim order[d] of the array.
Layout permuted(const Shape& array, const std::vector<int>& order, std::int64_t offset) {
  Layout layout = testing::shifted(array, offset);
  const Layout dense = layout;
  for (int d = 0; d < array.size(); ++d) {
    layout.sizes[d] = dense.sizes[order[static_cast<std::size_t>(d)]];
    layout.strides[d] = dense.strides[order[static_cast<std::size_t>(d)]];
  }
  layout.name = "permuted";
  return layout;
}

// Sizes around the sides of tiles and their packs, with other dims around the two.
TEST(CopyKernelTest, MovesTransposedTiles) {
  struct Case {
    Shape array;
    std::vector<int> order;
  };
  const std::vector<Case> cases = {{{16, 16}, {1, 0}},
                                   {{64, 64}, {1, 0}},
                                   {{128, 128}, {1, 0}},
                                   {{65, 63}, {1, 0}},
                                   {{17, 300}, {1, 0}},
                                   {{255, 6}, {1, 0}},
                                   {{513, 15}, {1, 0}},
                                   {{3, 600, 8}, {0, 2, 1}},
                                   {{256, 48}, {1, 0}},
                                   {{129, 160}, {1, 0}},
                                   {{15, 40}, {1, 0}},
                                   {{3, 40, 50}, {0, 2, 1}},
                                   {{3, 32, 64}, {2, 0, 1}},
                                   {{70, 3, 36}, {2, 1, 0}},
                                   {{2, 33, 3, 20}, {3, 1, 2, 0}},
                                   {{2, 32, 4, 16}, {0, 3, 2, 1}},
                                   {{32, 2, 16, 4}, {2, 3, 0, 1}}};
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    for (const Case& c : cases) {
      for (const std::int64_t offset : {0, 1}) {
        const Layout in = permuted(c.array, c.order, offset);
        std::vector<Array> input{Array(dtype, testing::shifted(in.sizes, offset)),
                                 Array(dtype, in)};
        fill_random(input[1], 3);
        const std::vector<Array> arrays = run_everywhere(
            input,
            [](const Target& target, const std::vector<TensorRef>& t) {
              kernels::copy(target, t[0], t[1]);
            },
            "transposed");
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          ASSERT_EQ(arrays[0].bits(i), arrays[1].bits(i))
              << dtype << in.sizes << offset << " " << i;
        }
      }
    }
  }
}

// Casts of transpositions: the CPU's bits, and the bits of the cast elements.
TEST(CopyKernelTest, ConvertsTransposedTiles) {
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16, DType::i32};
  for (const DType to : dtypes) {
    for (const DType from : dtypes) {
      if (to == from) continue;
      for (const Shape& sizes :
           {Shape{64, 128}, Shape{100, 36}, Shape{33, 71}, Shape{72, 200}, Shape{300, 6}}) {
        for (const std::int64_t offset : {0, 1}) {
          const Layout in = permuted(sizes, {1, 0}, offset);
          std::vector<Array> input{Array(to, testing::shifted(in.sizes, offset)), Array(from, in),
                                   Array(to, contiguous(sizes)), Array(from, contiguous(sizes))};
          fill_range(input[1], 3, -90, 90);
          for (std::int64_t c = 0; c < sizes[1]; ++c) {
            for (std::int64_t r = 0; r < sizes[0]; ++r) {
              const auto bytes = static_cast<std::int64_t>(element_size(from));
              std::memcpy(input[3].bytes().data() + (r * sizes[1] + c) * bytes,
                          input[1].bytes().data() + in.position(c * sizes[0] + r) * bytes,
                          static_cast<std::size_t>(bytes));
            }
          }
          const std::vector<Array> arrays = run_everywhere(
              input,
              [](const Target& target, const std::vector<TensorRef>& t) {
                kernels::copy(target, t[0], t[1]);
                kernels::copy(target, t[2], t[3]);
              },
              "transposed cast");
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            ASSERT_EQ(arrays[0].bits(i), arrays[2].bits(i % sizes[0] * sizes[1] + i / sizes[0]))
                << to << " of " << from << sizes << offset << " at " << i;
          }
        }
      }
    }
  }
}

// Rows that allow vector accesses, and others: parts of wider rows, and dims of stride 0.
TEST(CopyKernelTest, ConvertsRowsOfSlicesAndBroadcasts) {
  for (const std::int64_t columns : {64, 60, 7}) {
    for (const std::int64_t pitch : {80, 81}) {
      for (const Dims& strides : {Dims{pitch, 1}, Dims{0, 1}, Dims{1, 0}}) {
        for (const auto& [to, from] :
             {std::pair(DType::f16, DType::f32), std::pair(DType::f32, DType::f16),
              std::pair(DType::bool_, DType::f32), std::pair(DType::f32, DType::u8),
              std::pair(DType::f32, DType::f64), std::pair(DType::i16, DType::i16)}) {
          Layout in = contiguous({5, columns});
          in.strides = strides;
          in.elements = 5 * pitch;
          Layout out = contiguous({5, columns});
          out.strides = {pitch, 1};
          out.elements = 5 * pitch;
          std::vector<Array> input{Array(to, out), Array(from, in)};
          fill_range(input[1], 3, 0, 4);
          const std::vector<Array> arrays = run_everywhere(
              input,
              [](const Target& target, const std::vector<TensorRef>& t) {
                kernels::copy(target, t[0], t[1]);
              },
              "rows");
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            const double value = arrays[1].value(i);
            const double expected = to == DType::bool_ ? value != 0 : value;
            // f16 has 11 bits, f32 of an f64 24.
            ASSERT_NEAR(arrays[0].value(i), expected, 1e-3 * expected) << to << from << i;
          }
        }
      }
    }
  }
}

TEST(CopyKernelTest, ConvertsEveryTypeToEveryOther) {
  for (const DType to : kAllTypes) {
    for (const DType from : kAllTypes) {
      std::vector<Array> input{Array(to, contiguous({1027})), Array(from, contiguous({1027}))};
      fill_random(input[1], 5);
      // Floats at and around the integers' limits.
      dispatch(from, [&]<class From>(TypeTag<From>) {
        if constexpr (is_floating_point(dtype_of<From>)) {
          std::int64_t i = 0;
          for (const float limit : {127.f, 128.f, 255.f, 256.f, 32767.f, 32768.f, 2147483648.f,
                                    9223372036854775808.f, 1e30f}) {
            for (const float x : {limit, -limit, limit + 0.75f, -limit - 0.75f,
                                  std::nextafter(limit, 0.f), -std::nextafter(limit, 0.f)}) {
              input[1].set<From>(i++, static_cast<From>(x));
            }
          }
        }
      });
      const std::vector<Array> arrays = run_everywhere(
          input,
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::copy(target, t[0], t[1]);
          },
          "copy");
      dispatch(to, [&]<class To>(TypeTag<To>) {
        dispatch(from, [&]<class From>(TypeTag<From>) {
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            const auto source = arrays[1].get<From>(i);
            const To expected = converted<To>(source);
            const bool both_nan =
                std::isnan(static_cast<double>(expected)) && std::isnan(arrays[0].value(i));
            if (both_nan) continue;
            ASSERT_EQ(arrays[0].value(i), static_cast<double>(expected))
                << from << " to " << to << ": " << arrays[1].value(i);
            ASSERT_EQ(std::signbit(arrays[0].value(i)),
                      std::signbit(static_cast<double>(expected)));
          }
        });
      });
    }
  }
}

// Numbers at and next to the midpoint of two 16-bit numbers, in the precision of `From`.
template <class To, class From>
void expect_one_rounding() {
  std::vector<From> values;
  std::mt19937_64 random(9);
  while (values.size() < 20000) {
    const auto bits = static_cast<std::uint16_t>(random());
    const auto low = static_cast<double>(To::from_bits(bits));
    const auto high = static_cast<double>(To::from_bits(static_cast<std::uint16_t>(bits + 1)));
    const double tie = low + (high - low) / 2;
    if (!std::isfinite(tie)) continue;
    if constexpr (std::is_same_v<From, double>) {
      for (const double x : {tie, std::nextafter(tie, low), std::nextafter(tie, high)}) {
        values.push_back(x);
      }
    } else if (std::fabs(tie) < static_cast<double>(std::numeric_limits<From>::max() - 1)) {
      const auto middle = static_cast<From>(tie);
      for (const int distance : {-1, 0, 1}) values.push_back(static_cast<From>(middle + distance));
      values.push_back(static_cast<From>(random()));
    }
  }
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<Array> input{Array(dtype_of<To>, contiguous({count})),
                           Array(dtype_of<From>, contiguous({count}))};
  for (std::int64_t i = 0; i < count; ++i) input[1].set(i, values[static_cast<std::size_t>(i)]);
  const std::vector<Array> arrays = run_everywhere(
      input,
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::copy(target, t[0], t[1]);
      },
      "copy");
  for (std::int64_t i = 0; i < count; ++i) {
    const auto source = arrays[1].get<From>(i);
    ASSERT_EQ(arrays[0].get<To>(i).bits, nearest<To>(static_cast<long double>(source)).bits)
        << arrays[1].dtype() << " to " << arrays[0].dtype() << ": " << source;
  }
}

TEST(CopyKernelTest, RoundsToSixteenBitsOnce) {
  expect_one_rounding<float16, double>();
  expect_one_rounding<bfloat16, double>();
  expect_one_rounding<float16, std::int32_t>();
  expect_one_rounding<bfloat16, std::int32_t>();
  expect_one_rounding<float16, std::int64_t>();
  expect_one_rounding<bfloat16, std::int64_t>();
}

TEST(CopyKernelTest, KeepsBitsInEveryLayout) {
  for (const Shape& sizes : {Shape{4, 5, 6}, Shape{}, Shape{3, 0}, Shape{2, 1, 2, 1, 2, 1, 2, 3}}) {
    for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
      for (const Layout& out : testing::output_layouts(sizes)) {
        for (const Layout& in : testing::input_layouts(sizes)) {
          std::vector<Array> input{Array(dtype, out), Array(dtype, in)};
          fill_random(input[0], 1);
          fill_random(input[1], 2);
          const std::vector<Array> arrays = run_everywhere(
              input,
              [](const Target& target, const std::vector<TensorRef>& t) {
                kernels::copy(target, t[0], t[1]);
              },
              "copy");
          for (std::int64_t i = 0; i < sizes.product(); ++i) {
            ASSERT_EQ(arrays[0].bits(i), arrays[1].bits(i)) << out.name << " from " << in.name;
          }
          EXPECT_TRUE(arrays[1].bytes() == input[1].bytes());
        }
      }
    }
  }
}

// A GPU writes vectors of the output, which lie in up to three rows.
TEST(CopyKernelTest, MovesRowsShorterThanAVector) {
  for (const DType dtype : {u8, bf16, f32, i64}) {
    for (std::int64_t length = 1; length <= 9; ++length) {
      const Shape sizes = {5, 7, length};
      for (const Layout& layout :
           {testing::reversed(sizes), testing::sliced(sizes), testing::expanded(sizes),
            permuted({7, 5, length}, {1, 0, 2}, 0), permuted({7, 5, length}, {1, 0, 2}, 1)}) {
        Array in(dtype, layout);
        fill_random(in, static_cast<std::uint32_t>(length));
        const std::vector<Array> arrays = run_everywhere(
            {Array(dtype, contiguous(sizes)), in},
            [](const Target& target, const std::vector<TensorRef>& t) {
              kernels::copy(target, t[0], t[1]);
            },
            layout.name);
        for (std::int64_t i = 0; i < in.numel(); ++i) {
          ASSERT_EQ(arrays[0].bits(i), in.bits(i)) << dtype << layout.name << sizes << " at " << i;
        }
      }
    }
  }
}

// A GPU reads long rows by aligned vectors, whose bytes depend on both dtypes.
TEST(CopyKernelTest, ConvertsLongRowsThatBeginAnywhere) {
  for (const auto& [to, from] : {std::pair{f32, u8}, std::pair{bf16, u8}, std::pair{f32, bf16},
                                 std::pair{bf16, f32}, std::pair{u8, u8}, std::pair{f32, f32}}) {
    for (const std::int64_t columns : {127, 256, 301}) {
      for (std::int64_t offset = 0; offset < 16; ++offset) {
        Layout rows = testing::shifted({3, columns + 5}, offset);
        rows.sizes = {3, columns};
        Array in(from, rows);
        fill_range(in, static_cast<std::uint32_t>(offset), 0, 60);
        const std::vector<Array> arrays = run_everywhere(
            {Array(to, contiguous({3, columns})), in},
            [](const Target& target, const auto& t) { kernels::copy(target, t[0], t[1]); }, "rows");
        for (std::int64_t i = 0; i < in.numel(); ++i) {
          const auto value = static_cast<float>(in.value(i));
          ASSERT_EQ(arrays[0].value(i), to == bf16 ? static_cast<float>(bfloat16(value)) : value)
              << to << from << columns << offset << i;
        }
      }
    }
  }
}

TEST(CopyKernelTest, DoesNotWriteBetweenTheElementsOfTheOutput) {
  std::vector<Array> input{Array(i32, testing::sliced({3, 4})), Array(i32, contiguous({3, 4}))};
  fill_random(input[0], 1);
  fill_random(input[1], 2);
  const std::vector<Array> arrays = run_everywhere(
      input,
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::copy(target, t[0], t[1]);
      },
      "copy");
  const auto* before = reinterpret_cast<const std::int32_t*>(input[0].bytes().data());
  const auto* after = reinterpret_cast<const std::int32_t*>(arrays[0].bytes().data());
  for (int i = 1; i < 24; i += 2) EXPECT_EQ(after[i], before[i]);
}

TEST(FillKernelTest, ConvertsTheNumberOnce) {
  struct Case {
    DType dtype;
    Scalar number;
    double expected;
  };
  const Case cases[] = {
      {DType::bool_, 2, 1},    {DType::bool_, 0.5, 1},  {DType::u8, -1, 255},
      {DType::u8, 300.7, 255}, {DType::i8, -1e9, -128}, {DType::i16, 3.99, 3},
      {DType::i32, NAN, 0},    {DType::i64, -7, -7},    {DType::f16, 1e6, INFINITY},
      {DType::bf16, 1.5, 1.5}, {DType::f32, 0.1, 0.1f}, {DType::f64, 0.1, 0.1}};
  for (const Case& c : cases) {
    for (const Layout& layout : testing::output_layouts({3, 7})) {
      const std::vector<Array> arrays = run_everywhere(
          {Array(c.dtype, layout)},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::fill(target, t[0], c.number);
          },
          "fill");
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        ASSERT_EQ(arrays[0].value(i), c.expected)
            << c.dtype << " " << c.number << " " << layout.name;
      }
    }
  }
}

TEST(ArangeKernelTest, CountsInF64OrI64) {
  for (const DType dtype : kAllTypes) {
    for (const Layout& layout : {contiguous({1001}), testing::sliced({1001})}) {
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype, layout)},
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::arange(target, t[0], -3, 2);
          },
          "arange");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          ASSERT_EQ(arrays[0].value(i), static_cast<double>(converted<T>(2 * i - 3))) << dtype;
        }
      });
    }
  }
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({1000}))},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::arange(target, t[0], 0.1, 0.1);
      },
      "arange");
  for (std::int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(arrays[0].get<float>(i), static_cast<float>(0.1 + static_cast<double>(i) * 0.1));
  }
}

TEST(ArangeKernelTest, CountsFromAFirstIndex) {
  for (const std::int64_t first : {-40, 0, 7}) {
    for (const DType dtype : {i32, f32, f64}) {
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype, testing::sliced({41}))},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::arange(target, t[0], 5, is_floating_point(dtype) ? Scalar(0.1) : Scalar(3),
                            first);
          },
          "arange");
      for (std::int64_t i = 0; i < 41; ++i) {
        const double exact = dtype == i32 ? static_cast<double>(5 + 3 * (first + i))
                                          : 5 + static_cast<double>(first + i) * 0.1;
        ASSERT_EQ(arrays[0].value(i), dtype == f32 ? double{static_cast<float>(exact)} : exact);
      }
    }
  }
}

TEST(TriangleKernelTest, KeepsOneSideOfTheDiagonal) {
  const Shape sizes = {2, 5, 7};
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  for (const Layout& layout : testing::input_layouts(sizes)) {
    for (const bool lower : {true, false}) {
      for (const std::int64_t diagonal : {-kFar - 1, -kFar, -6L, -1L, 0L, 2L, 8L, kFar}) {
        const bool is_transposed = diagonal % 2 == 0;
        std::vector<Array> input{
            Array(f32, is_transposed ? testing::transposed(sizes) : contiguous(sizes)),
            Array(f32, layout)};
        fill_random(input[1], 3);
        const std::vector<Array> arrays = run_everywhere(
            input,
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::triangle(target, t[0], t[1], lower, diagonal);
            },
            "triangle");
        for (std::int64_t i = 0; i < sizes.product(); ++i) {
          const std::int64_t distance = i % 7 - i / 7 % 5;
          const bool kept = lower ? distance <= diagonal : distance >= diagonal;
          ASSERT_EQ(arrays[0].bits(i), kept ? arrays[1].bits(i) : 0u) << layout.name;
        }
      }
    }
  }
}

TEST(DispatchTest, RejectsHostMemoryOnASimulatedDeviceBeforeItRuns) {
  GANTRY_REQUIRE_SIM();
  std::vector<float> host(8, 1.0f);
  TensorRef tensor;
  tensor.data = host.data();
  tensor.ndim = 1;
  tensor.sizes[0] = 8;
  tensor.strides[0] = 1;
  EXPECT_THROW(kernels::fill(Target::on(Stream::current(Device::cuda(0))), tensor, 2), CudaError);
  EXPECT_EQ(host, std::vector<float>(8, 1.0f));
}

// Sizes around the sizes of the host's tiles and blocks, in words of every size.
TEST(CopyTest, TranspositionsOfAllSizes) {
  for (const DType dtype : {DType::u8, DType::i16, DType::f32, DType::f64}) {
    for (const Shape& sizes : {Shape{1, 65}, Shape{63, 64}, Shape{64, 257}, Shape{130, 31},
                               Shape{300, 70}, Shape{3, 40, 67}, Shape{70, 2, 33}}) {
      Array in(dtype, testing::transposed(sizes));
      fill_random(in, 5);
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype, contiguous(sizes)), in},
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::copy(target, t[0], t[1]);
          },
          "transposition of " + sizes.str());
      for (std::int64_t i = 0; i < in.numel(); ++i) {
        ASSERT_EQ(arrays[0].bits(i), in.bits(i)) << dtype << " " << sizes << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
