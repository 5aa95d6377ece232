#include "kernels/peers/nary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gantry/core/error.hpp>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::NaryOp;
using kernels::Target;

constexpr NaryOp kOps[] = {NaryOp::sum,  NaryOp::prod, NaryOp::min, NaryOp::max,
                           NaryOp::band, NaryOp::bor,  NaryOp::bxor};

bool is_bitwise(NaryOp op) { return op == NaryOp::band || op == NaryOp::bor || op == NaryOp::bxor; }

// One combining step, written out plainly.
template <class Acc>
Acc float_step(NaryOp op, Acc a, Acc b) {
  switch (op) {
    case NaryOp::sum:
      return a + b;
    case NaryOp::prod:
      return a * b;
    case NaryOp::min:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Acc>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
      return std::min(a, b);
    case NaryOp::max:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Acc>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
      return std::max(a, b);
    default:
      ADD_FAILURE();
      return a;
  }
}

template <class T>
T integer_step(NaryOp op, T a, T b) {
  constexpr bool is_bool = std::is_same_v<T, bool>;
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  switch (op) {
    case NaryOp::sum:
      return is_bool ? static_cast<T>(a || b) : static_cast<T>(x + y);
    case NaryOp::prod:
      return is_bool ? static_cast<T>(a && b) : static_cast<T>(x * y);
    case NaryOp::min:
      return std::min(a, b);
    case NaryOp::max:
      return std::max(a, b);
    case NaryOp::band:
      return static_cast<T>(x & y);
    case NaryOp::bor:
      return static_cast<T>(x | y);
    case NaryOp::bxor:
      return static_cast<T>(x ^ y);
    case NaryOp::min_unsigned:
    case NaryOp::max_unsigned:
      break;  // nary() is not called with them
  }
  return a;
}

// The expected element.
template <class T>
T expected_element(NaryOp op, const std::vector<Array>& arrays, std::int64_t i, double divisor) {
  if constexpr (is_floating_point(dtype_of<T>)) {
    using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Acc result = static_cast<Acc>(arrays[1].get<T>(i));
    for (std::size_t k = 2; k < arrays.size(); ++k) {
      result = float_step(op, result, static_cast<Acc>(arrays[k].get<T>(i)));
    }
    if (divisor != 1) result = result / static_cast<Acc>(divisor);
    if (std::isnan(result)) result = std::numeric_limits<Acc>::quiet_NaN();
    return static_cast<T>(result);
  } else {
    T result = arrays[1].get<T>(i);
    for (std::size_t k = 2; k < arrays.size(); ++k) {
      result = integer_step(op, result, arrays[k].get<T>(i));
    }
    return result;
  }
}

std::vector<Array> run_nary(NaryOp op, const std::vector<Array>& arrays, double divisor = 1) {
  return testing::run_everywhere(
      arrays,
      [&](const Target& target, const std::vector<TensorRef>& t) {
        std::vector<const void*> inputs;
        for (std::size_t k = 1; k < t.size(); ++k) inputs.push_back(t[k].data);
        kernels::nary(target, op, t[0].data, inputs, t[0].sizes[0], t[0].dtype, divisor);
      },
      "nary");
}

template <class T>
void expect_nary(NaryOp op, const std::vector<Array>& arrays, double divisor = 1) {
  const auto after = run_nary(op, arrays, divisor);
  for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
    const T expected = expected_element<T>(op, arrays, i, divisor);
    const T got = after[0].get<T>(i);
    ASSERT_EQ(std::memcmp(&expected, &got, sizeof got), 0)
        << static_cast<int>(op) << " of " << arrays.size() - 1 << " " << dtype_of<T> << " at " << i
        << ": expected " << static_cast<double>(expected) << ", but got "
        << static_cast<double>(got);
  }
}

TEST(NaryKernelTest, CombinesInTheGivenOrderForEveryDTypeAndOperation) {
  for (const DType dtype : testing::kAllTypes) {
    for (const NaryOp op : kOps) {
      if (is_bitwise(op) && is_floating_point(dtype)) continue;
      for (const int inputs : {1, 2, 7, 8, 9, 64}) {
        std::vector<Array> arrays(static_cast<std::size_t>(inputs) + 1,
                                  Array(dtype, contiguous({157})));
        for (std::size_t k = 0; k < arrays.size(); ++k) {
          fill_random(arrays[k], static_cast<std::uint32_t>(k + 1));
        }
        dispatch(dtype, [&](auto tag) { expect_nary<typename decltype(tag)::type>(op, arrays); });
      }
    }
  }
}

TEST(NaryKernelTest, HandlesEveryAlignmentAndLength) {
  for (const DType dtype : {u8, f16, f32, f64}) {
    for (const std::int64_t count : {0, 1, 3, 15, 16, 17, 2049}) {
      for (std::int64_t offset = 0; offset < 16; offset += 3) {
        for (const std::int64_t other : {std::int64_t{0}, offset}) {
          std::vector<Array> arrays{Array(dtype, testing::shifted({count}, offset)),
                                    Array(dtype, testing::shifted({count}, offset)),
                                    Array(dtype, testing::shifted({count}, other))};
          fill_range(arrays[1], 1, 0, 100);
          fill_range(arrays[2], 2, 0, 100);
          dispatch(dtype, [&](auto tag) {
            expect_nary<typename decltype(tag)::type>(NaryOp::sum, arrays);
          });
        }
      }
    }
  }
}

TEST(NaryKernelTest, DividesTheAccumulatorBeforeRounding) {
  for (const DType dtype : testing::kFloatingTypes) {
    std::vector<Array> arrays(4, Array(dtype, contiguous({1000})));
    for (std::size_t k = 1; k < arrays.size(); ++k) {
      fill_range(arrays[k], static_cast<std::uint32_t>(k), -1, 1);
    }
    dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (is_floating_point(dtype_of<T>)) expect_nary<T>(NaryOp::sum, arrays, 3);
    });
  }
}

TEST(NaryKernelTest, HandlesSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float values[] = {0.0f, -0.0f, 1.0f, inf, -inf, NAN, -NAN, tiny, -tiny, 3e38f};
  const std::int64_t count = std::size(values);
  std::vector<Array> arrays(3, Array(f32, contiguous({count * count})));
  for (std::int64_t i = 0; i < count * count; ++i) {
    arrays[1].set(i, values[i / count]);
    arrays[2].set(i, values[i % count]);
  }
  for (const NaryOp op : {NaryOp::sum, NaryOp::prod, NaryOp::min, NaryOp::max}) {
    expect_nary<float>(op, arrays);
  }
}

TEST(NaryKernelTest, MayWriteOverAnInput) {
  std::vector<Array> arrays(3, Array(f32, contiguous({3000})));
  for (std::size_t k = 0; k < 3; ++k) fill_range(arrays[k], static_cast<std::uint32_t>(k), -1, 1);
  const auto after = testing::run_everywhere(
      arrays,
      [](const Target& target, const std::vector<TensorRef>& t) {
        const void* inputs[] = {t[1].data, t[0].data, t[2].data};
        kernels::nary(target, NaryOp::sum, t[0].data, inputs, 3000, f32);
      },
      "nary in place");
  for (std::int64_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(after[0].get<float>(i),
              (arrays[1].get<float>(i) + arrays[0].get<float>(i)) + arrays[2].get<float>(i));
  }
}

TEST(NaryKernelTest, WritesEveryOutput) {
  for (const DType dtype : {u8, f16, f32}) {
    for (const std::int64_t offset : {0, 1}) {
      // Three outputs, the last of which is an input, and one more input.
      std::vector<Array> arrays(4, Array(dtype, testing::shifted({2000}, offset)));
      for (std::size_t k = 2; k < 4; ++k)
        fill_range(arrays[k], static_cast<std::uint32_t>(k), 0, 99);
      const auto after = testing::run_everywhere(
          arrays,
          [&](const Target& target, const std::vector<TensorRef>& t) {
            const void* inputs[] = {t[2].data, t[3].data};
            void* outs[] = {t[0].data, t[1].data, t[2].data};
            kernels::nary(target, NaryOp::sum, std::span<void* const>(outs), inputs, 2000, dtype);
          },
          "nary into several outputs");
      dispatch(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const std::vector<Array> operands{arrays[0], arrays[2], arrays[3]};
        for (std::int64_t i = 0; i < 2000; ++i) {
          const T expected = expected_element<T>(NaryOp::sum, operands, i, 1);
          for (std::size_t k = 0; k < 3; ++k) ASSERT_EQ(after[k].get<T>(i), expected) << k;
        }
      });
    }
  }
}

// From a megabyte on, arrays may take another kernel.
TEST(NaryKernelTest, CombinesLargeArrays) {
  struct Case {
    DType dtype;
    NaryOp op;
    int inputs;
    std::int64_t rest;  // elements beyond a megabyte
  };
  for (const Case& c : {Case{f32, NaryOp::sum, 8, 4097}, Case{f32, NaryOp::sum, 17, 0},
                        Case{f32, NaryOp::max, 3, 1021}, Case{f16, NaryOp::sum, 4, 2055},
                        Case{bf16, NaryOp::prod, 2, 7}, Case{u8, NaryOp::bxor, 7, 4111},
                        Case{i32, NaryOp::min, 5, 1}, Case{f64, NaryOp::sum, 16, 513}}) {
    const std::int64_t count = (std::int64_t{1} << 20) / element_size(c.dtype) + c.rest;
    std::vector<Array> arrays(static_cast<std::size_t>(c.inputs) + 1,
                              Array(c.dtype, contiguous({count})));
    for (std::size_t k = 1; k < arrays.size(); ++k) {
      fill_range(arrays[k], static_cast<std::uint32_t>(k), 0, 9);
    }
    dispatch(c.dtype, [&](auto tag) { expect_nary<typename decltype(tag)::type>(c.op, arrays); });
  }
}

TEST(NaryKernelTest, WritesEveryLargeOutput) {
  constexpr std::int64_t kCount = (1 << 18) + 1025;
  std::vector<Array> arrays(4, Array(f32, contiguous({kCount})));
  for (std::size_t k = 0; k < 4; ++k) fill_range(arrays[k], static_cast<std::uint32_t>(k), -1, 1);
  const auto after = testing::run_everywhere(
      arrays,
      [](const Target& target, const std::vector<TensorRef>& t) {
        // One output is also an input.
        const void* inputs[] = {t[1].data, t[2].data, t[3].data};
        void* outs[] = {t[0].data, t[2].data};
        kernels::nary(target, NaryOp::sum, std::span<void* const>(outs), inputs, kCount, f32);
      },
      "large nary into several outputs");
  for (std::int64_t i = 0; i < kCount; ++i) {
    const float expected =
        (arrays[1].get<float>(i) + arrays[2].get<float>(i)) + arrays[3].get<float>(i);
    ASSERT_EQ(after[0].get<float>(i), expected) << i;
    ASSERT_EQ(after[2].get<float>(i), expected) << i;
  }
}

TEST(NaryKernelTest, ABatchEqualsSingleOperations) {
  for (const DType dtype : {bool_, u8, i16, bf16, f32, i64}) {
    for (const int item_count : {1, 3, 300, 1100}) {
      // Items of every length and alignment, one after the other in each array.
      std::vector<std::int64_t> begins{0};
      for (int r = 0; r < item_count; ++r) {
        const std::int64_t length = r % 50 == 7 ? 5000 : r % 37;
        begins.push_back(begins.back() + length + (r % 3 == 0 ? 0 : 16 - length % 16));
      }
      std::vector<Array> arrays(6, Array(dtype, contiguous({begins.back() + 16})));
      for (std::size_t k = 1; k < arrays.size(); ++k) {
        fill_random(arrays[k], static_cast<std::uint32_t>(k));
      }
      const auto length_of = [](int r) { return std::int64_t{r % 50 == 7 ? 5000 : r % 37}; };
      const auto width = static_cast<std::int64_t>(element_size(dtype));
      const auto after = testing::run_everywhere(
          arrays,
          [&](const Target& target, const std::vector<TensorRef>& t) {
            std::vector<kernels::NaryItem> items;
            std::vector<const void*> inputs;
            for (int r = 0; r < item_count; ++r) {
              const std::int64_t place = begins[static_cast<std::size_t>(r)] * width;
              items.push_back({static_cast<std::byte*>(t[0].data) + place, length_of(r)});
              for (std::size_t k = 1; k < t.size(); ++k) {
                inputs.push_back(static_cast<std::byte*>(t[k].data) + place);
              }
            }
            kernels::nary_batched(target, NaryOp::sum, items, inputs, dtype);
          },
          "nary batch");
      dispatch(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int r = 0; r < item_count; ++r) {
          for (std::int64_t k = 0; k < length_of(r); ++k) {
            const std::int64_t i = begins[static_cast<std::size_t>(r)] + k;
            const T expected = expected_element<T>(NaryOp::sum, arrays, i, 1);
            const T got = after[0].get<T>(i);
            ASSERT_EQ(std::memcmp(&expected, &got, sizeof got), 0) << dtype << " item " << r;
          }
        }
      });
    }
  }
}

TEST(NaryKernelTest, RejectsBadArguments) {
  float value = 1;
  std::vector<const void*> inputs(65, &value);
  const auto message = [&](std::span<const void* const> given, NaryOp op) -> std::string {
    try {
      kernels::nary(Target::cpu(), op, &value, given, 1, f32);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message(inputs, NaryOp::sum),
              ::testing::HasSubstr("nary: expected 1 to 64 inputs, but got 65"));
  EXPECT_THAT(message({}, NaryOp::sum),
              ::testing::HasSubstr("nary: expected 1 to 64 inputs, but got 0"));
  EXPECT_THAT(message({inputs.data(), 2}, NaryOp::bxor),
              ::testing::HasSubstr(
                  "nary: expected an integer or bool dtype for a bitwise operation, but got f32"));
}

}  // namespace
}  // namespace gantry::testing
