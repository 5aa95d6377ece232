#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reductions/reduce.hpp"
#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// Exponentials of the host and of a GPU differ in the last bits. Both are compared to the oracle
// instead of each other.
using Runner = void (*)(std::vector<Array>&, const testing::KernelCall&);

std::vector<Array> run_softmax(Runner run, bool logarithm, const Array& in, int dim) {
  std::vector<Array> arrays{Array(in.dtype(), contiguous(in.layout().sizes)), in};
  run(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
    kernels::softmax(target, logarithm, t[0], t[1], dim);
  });
  return arrays;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1e-2;
    case DType::f32:
      return 1e-5;
    default:
      return 1e-12;
  }
}

void expect_softmax(const Array& in, int dim, const Array& result, bool logarithm) {
  const Shape& sizes = in.layout().sizes;
  std::int64_t inner = 1;
  for (int d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const std::int64_t length = sizes[dim];
  for (std::int64_t line = 0; line < sizes.product() / length; ++line) {
    const std::int64_t base = line / inner * inner * length + line % inner;
    long double maximum = -INFINITY;
    for (std::int64_t k = 0; k < length; ++k) {
      maximum = std::max<long double>(maximum, in.value(base + k * inner));
    }
    long double sum = 0;
    for (std::int64_t k = 0; k < length; ++k) {
      sum += std::exp(static_cast<long double>(in.value(base + k * inner)) - maximum);
    }
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t i = base + k * inner;
      const long double shifted = static_cast<long double>(in.value(i)) - maximum;
      const auto expected =
          static_cast<double>(logarithm ? shifted - std::log(sum) : std::exp(shifted) / sum);
      // A logarithm is a difference of numbers of at least magnitude 1.
      const double allowed =
          tolerance(in.dtype()) * std::max(logarithm ? 1.0 : 1e-4, std::abs(expected));
      ASSERT_NEAR(result.value(i), expected, allowed)
          << in.dtype() << " " << sizes << " dim " << dim << " " << in.layout().name << " at " << i;
    }
  }
}

void check_everywhere(const Array& in, int dim, bool logarithm) {
  expect_softmax(in, dim, run_softmax(testing::run_on_cpu, logarithm, in, dim)[0], logarithm);
  expect_softmax(in, dim, run_softmax(testing::run_on_device, logarithm, in, dim)[0], logarithm);
}

TEST(SoftmaxKernelTest, MatchesItsDefinitionInEveryLayoutAndType) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const Layout& layout : testing::input_layouts({5, 33, 12})) {
      Array in(dtype, layout);
      fill_range(in, 3, -4, 4);
      for (int dim = 0; dim < 3; ++dim) {
        check_everywhere(in, dim, false);
        check_everywhere(in, dim, true);
      }
    }
  }
}

// Columns of one tile and of several, in one chunk and in several.
TEST(SoftmaxKernelTest, HandlesColumnsOfEveryWidth) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const Shape& sizes : {Shape{3, 1100}, Shape{300, 70}, Shape{2, 40, 5}, Shape{17000, 3}}) {
      Array in(dtype, contiguous(sizes));
      fill_range(in, 6, -4, 4);
      for (const bool logarithm : {false, true}) check_everywhere(in, sizes.size() - 2, logarithm);
    }
  }
}

TEST(SoftmaxKernelTest, HandlesShortAndLongFibres) {
  for (const Shape& sizes : {Shape{3, 1}, Shape{2, 1000}, Shape{2, 5000}, Shape{1, 40001},
                             Shape{700, 40}, Shape{40001, 1}}) {
    for (int dim = 0; dim < 2; ++dim) {
      Array in(f32, contiguous(sizes));
      fill_range(in, 9, -4, 4);
      check_everywhere(in, dim, false);
    }
  }
}

// Rows that shared memory holds, and longer ones: with and without wide accesses.
TEST(SoftmaxKernelTest, HandlesRowsOfEveryLength) {
  for (const std::int64_t length :
       {128, 129, 512, 513, 1025, 4100, 4101, 8192, 8193, 16384, 16385, 70001}) {
    for (const DType dtype : {f32, bf16, f64}) {
      if (length > 9000 && dtype != f32) continue;
      Array in(dtype, length == 4100 ? testing::shifted({2, length}) : contiguous({2, length}));
      fill_range(in, 9, -4, 4);
      check_everywhere(in, 1, length % 2 == 0);
    }
  }
}

// Several short rows share a warp on a GPU; the last warp has fewer.
TEST(SoftmaxKernelTest, HandlesManyShortRows) {
  for (const std::int64_t length : {4, 8, 31, 32, 36, 64, 68, 128, 132, 252, 256, 260, 512, 1024}) {
    for (const DType dtype : testing::kFloatingTypes) {
      for (const std::int64_t rows : {1, 7, 34}) {
        const Shape sizes{rows, length};
        Array in(dtype, rows == 34 ? padded_rows(sizes) : contiguous(sizes));
        fill_range(in, static_cast<std::uint32_t>(length), -4, 4);
        check_everywhere(in, 1, rows == 7);
      }
    }
  }
}

// The host has code for whole rows of 32 and 64 elements.
TEST(SoftmaxKernelTest, RowsOfEveryLayoutHaveTheSameBits) {
  for (const std::int64_t length : {31, 32, 33, 63, 64, 65}) {
    for (const DType dtype : testing::kFloatingTypes) {
      const Shape sizes{70, length};
      Array rows(dtype, padded_rows(sizes));
      Array columns(dtype, testing::transposed(sizes));
      fill_range(rows, 3, -9, 4);
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        for (std::int64_t i = 0; i < rows.numel(); ++i) columns.set<T>(i, rows.get<T>(i));
      });
      for (const bool logarithm : {false, true}) {
        const Array a = run_softmax(testing::run_on_cpu, logarithm, rows, 1)[0];
        const Array b = run_softmax(testing::run_on_cpu, logarithm, columns, 1)[0];
        for (std::int64_t i = 0; i < a.numel(); ++i) {
          ASSERT_EQ(a.bits(i), b.bits(i)) << dtype << " rows of " << length << " at " << i;
        }
      }
    }
  }
}

// A GPU gives a fibre of at most 64 elements to a thread: rows of a tile, with and without wide
// accesses, and neighbouring columns. The last tile has fewer fibres.
TEST(SoftmaxKernelTest, HandlesFibresOfAThread) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const std::int64_t length :
         {1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 24, 32, 33, 48, 63, 64, 65}) {
      for (const Shape& sizes : {Shape{131, length}, Shape{257, length}, Shape{24, length, 6},
                                 Shape{9, length, 17}, Shape{5, length, 31}}) {
        Array in(dtype, sizes[0] == 131 ? testing::shifted(sizes) : contiguous(sizes));
        fill_range(in, static_cast<std::uint32_t>(length), -4, 4);
        check_everywhere(in, 1, sizes[0] % 2 == 0);
      }
    }
  }
  for (const DType dtype : {f32, bf16}) {
    for (const std::int64_t length : {2, 11, 40}) {
      Array in(dtype, contiguous({length, 65600}));
      fill_range(in, 2, -4, 4);
      check_everywhere(in, 0, length == 11);
    }
    for (const Shape& sizes : {Shape{16, 16384}, Shape{16, 16383}, Shape{17, 16385}}) {
      Array in(dtype, contiguous(sizes));
      fill_range(in, 2, -4, 4);
      check_everywhere(in, 0, false);
    }
  }
}

// The softmax of one element is 1, and its logarithm 0, unless the element is not finite.
TEST(SoftmaxKernelTest, FibresOfOneElement) {
  const Shape sizes{1003, 1};
  for (const DType dtype : testing::kFloatingTypes) {
    for (const Layout& layout : {contiguous(sizes), testing::shifted(sizes), testing::sliced(sizes),
                                 contiguous({17, 1, 59})}) {
      Array in(dtype, layout);
      fill_range(in, 4, -4, 4);
      const auto set = [&](std::int64_t i, double value) {
        dispatch(dtype, [&]<class T>(TypeTag<T>) { in.set<T>(i, static_cast<T>(value)); });
      };
      set(0, -0.0);
      set(5, NAN);
      set(1001, INFINITY);
      set(1002, -INFINITY);
      for (const bool logarithm : {false, true}) {
        for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
          const Array result = run_softmax(run, logarithm, in, 1)[0];
          for (std::int64_t i = 0; i < 1003; ++i) {
            if (i == 5 || i > 1000) {
              ASSERT_TRUE(std::isnan(result.value(i))) << dtype << layout.name << i;
            } else {
              ASSERT_EQ(result.value(i), logarithm ? 0 : 1) << dtype << layout.name << i;
              ASSERT_FALSE(std::signbit(result.value(i))) << dtype << layout.name << i;
            }
          }
        }
      }
    }
  }
}

// A GPU gives a few neighbouring columns to a block.
TEST(SoftmaxKernelTest, HandlesSlabsOfColumns) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const std::int64_t columns : {2, 5, 8, 9, 16, 17, 31}) {
      for (const std::int64_t length : {65, 127, 130, 700}) {
        Array in(dtype, contiguous({3, length, columns}));
        fill_range(in, static_cast<std::uint32_t>(columns), -4, 4);
        check_everywhere(in, 1, columns % 2 == 0);
      }
    }
  }
  Array in(f32, contiguous({2, 16384, 3}));
  fill_range(in, 1, -4, 4);
  check_everywhere(in, 1, false);
}

// Rows of every kernel that has lanes of a warp for a row, without wide accesses.
TEST(SoftmaxKernelTest, HandlesNarrowShortRows) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const std::int64_t length : {5, 63, 65, 127, 129, 255, 257, 511, 513, 1023}) {
      const Shape sizes{9, length};
      for (const Layout& layout : {contiguous(sizes), padded_rows(sizes)}) {
        Array in(dtype, layout);
        fill_range(in, static_cast<std::uint32_t>(length), -4, 4);
        check_everywhere(in, 1, length % 4 == 1);
      }
    }
  }
}

// The chunks of so many long rows have a warp each on a GPU, and their pieces several tiles.
TEST(SoftmaxKernelTest, HandlesLongRowsOfManyChunks) {
  for (const DType dtype : {f32, bf16}) {
    for (const std::int64_t length : {16384 * 9 - 8, 16384 * 9 - 5}) {
      Array in(dtype, contiguous({120, length}));
      fill_range(in, 8, -4, 4);
      const Array expected = run_softmax(testing::run_on_cpu, false, in, 1)[0];
      const Array result = run_softmax(testing::run_on_device, false, in, 1)[0];
      for (std::int64_t i = 0; i < 120 * length; ++i) {
        ASSERT_NEAR(result.value(i), expected.value(i), tolerance(dtype) * expected.value(i)) << i;
      }
    }
  }
}

// A GPU splits a few long rows over blocks, and gives each of many rows a block.
TEST(SoftmaxKernelTest, HandlesFewAndManyLongRows) {
  for (const DType dtype : {f32, bf16}) {
    for (const Shape& sizes :
         {Shape{1, 300001}, Shape{3, 65536}, Shape{2, 21637}, Shape{1, 49432}, Shape{1, 56320},
          Shape{1, 56321}, Shape{2, 65537}, Shape{197, 16500}, Shape{198, 16500}}) {
      Array in(dtype, contiguous(sizes));
      fill_range(in, 4, -4, 4);
      check_everywhere(in, 1, sizes[0] == 3);
    }
  }
  Array columns(f32, testing::transposed({3, 20000}));
  fill_range(columns, 5, -4, 4);
  check_everywhere(columns, 1, false);
}

// Quotients from 1 down to the smallest f32 numbers equal the quotients of a division.
TEST(SoftmaxKernelTest, DividesTinyExponentials) {
  for (const std::int64_t length : {200, 3000, 40000}) {
    Array in(f32, contiguous({length}));
    for (std::int64_t i = 0; i < length; ++i) in.set(i, -0.1f * static_cast<float>(i % 1100));
    for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
      const auto arrays = run_softmax(run, false, in, 0);
      const double largest = arrays[0].value(0);
      for (std::int64_t i = 0; i < length; ++i) {
        const double expected = largest * std::exp(static_cast<double>(in.get<float>(i)));
        ASSERT_NEAR(arrays[0].value(i), expected, expected * 1e-5 + 3e-45) << i;
      }
    }
  }
}

TEST(SoftmaxKernelTest, DoesNotOverflow) {
  Array in(f32, contiguous({3}));
  in.set(0, 1e30f);
  in.set(1, 1e30f);
  in.set(2, -1e30f);
  for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
    const auto arrays = run_softmax(run, false, in, 0);
    EXPECT_EQ(arrays[0].value(0), 0.5);
    EXPECT_EQ(arrays[0].value(1), 0.5);
    EXPECT_EQ(arrays[0].value(2), 0);
  }
}

TEST(SoftmaxKernelTest, ANaNAffectsItsFibreOnly) {
  for (const std::int64_t length : {50, 128, 4000, 20000}) {
    for (const float special : {NAN, INFINITY}) {
      Array in(f32, contiguous({2, length}));
      fill_range(in, 9, -4, 4);
      in.set(7, special);
      for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
        const auto arrays = run_softmax(run, false, in, 1);
        for (std::int64_t k = 0; k < length; ++k) {
          ASSERT_EQ(arrays[0].bits(k), 0x7fc00000u) << length << " at " << k;
          ASSERT_FALSE(std::isnan(arrays[0].value(length + k))) << length << " at " << k;
        }
      }
    }
  }
}

// Masked elements are -inf. A row of nothing else has no softmax.
TEST(SoftmaxKernelTest, MaskedElementsAreZero) {
  for (const std::int64_t length : {40, 128, 4000, 20000}) {
    for (const DType dtype : {f32, bf16}) {
      Array in(dtype, contiguous({2, length}));
      for (std::int64_t i = 0; i < 2 * length; ++i) {
        const float value = i < length && i % 4 == 0 ? 0.0f : -INFINITY;
        if (dtype == f32) in.set(i, value);
        if (dtype == bf16) in.set(i, bfloat16(value));
      }
      for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
        const auto arrays = run_softmax(run, false, in, 1);
        for (std::int64_t k = 0; k < length; ++k) {
          const double expected = k % 4 == 0 ? 4.0 / static_cast<double>(length) : 0;
          ASSERT_NEAR(arrays[0].value(k), expected, expected * 0.01) << length << " at " << k;
          ASSERT_TRUE(std::isnan(arrays[0].value(length + k))) << length << " at " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
