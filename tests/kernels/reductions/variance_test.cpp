#include "kernels/reductions/variance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// Note [Variances], written out.
template <class Acc>
struct Part {
  Acc mean;
  Acc squares;
  Acc sum;
  Acc count;
};

template <class Acc>
Part<Acc> part_of(const std::vector<Acc>& elements) {
  Acc distances = 0;
  Acc squares = 0;
  Acc sum = elements[0];
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const Acc distance = elements[i] - elements[0];
    distances += distance;
    squares += distance * distance;
    if (i > 0) sum += elements[i];
  }
  const Acc count = static_cast<Acc>(elements.size());
  return {elements[0] + distances / count, squares - distances * (distances / count), sum, count};
}

template <class Acc>
Part<Acc> combined(const Part<Acc>& a, const Part<Acc>& b) {
  const Acc distance = b.mean - a.mean;
  const Acc share = b.count / (a.count + b.count);
  return {a.mean + distance * share,
          a.squares + b.squares + distance * distance * (a.count * share), a.sum + b.sum,
          a.count + b.count};
}

// The tree of Note [Reduction order] over at most 128 parts.
template <class Acc>
Part<Acc> tree_of(std::vector<Part<Acc>> parts) {
  for (std::size_t half = 64; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half && j + half < parts.size(); ++j) {
      parts[j] = combined(parts[j], parts[j + half]);
    }
    if (parts.size() > half) parts.resize(half);
  }
  return parts[0];
}

template <class Acc>
Part<Acc> whole_of(const std::vector<Acc>& elements) {
  std::vector<Part<Acc>> chunks;
  for (std::size_t first = 0; first < elements.size(); first += 16384) {
    std::vector<std::vector<Acc>> accumulators;
    for (std::size_t k = first; k < std::min(first + 16384, elements.size()); ++k) {
      if (k - first < 128) accumulators.emplace_back();
      accumulators[k % 128].push_back(elements[k]);
    }
    std::vector<Part<Acc>> parts;
    for (const std::vector<Acc>& own : accumulators) parts.push_back(part_of(own));
    chunks.push_back(tree_of(parts));
  }
  std::vector<Part<Acc>> merged;  // fewer than 16384 chunks
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    if (c < 128) {
      merged.push_back(chunks[c]);
    } else {
      merged[c % 128] = combined(merged[c % 128], chunks[c]);
    }
  }
  return tree_of(merged);
}

// The arrays of the results and the means.
std::vector<Array> run_variance(bool is_root, const Array& in, unsigned mask, double divisor) {
  const Layout layout = contiguous(reduced_sizes(in.layout().sizes, mask));
  return run_everywhere(
      {Array(in.dtype(), layout), Array(in.dtype(), layout), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::variance(target, is_root, t[0], t[1], t[2], divisor);
      },
      in.layout().name);
}

template <class T>
void expect_as_documented(const Array& in, unsigned mask) {
  using Acc = Accumulator<T>;
  const auto outputs = members(in.layout().sizes, mask);
  const double divisor = static_cast<double>(outputs[0].size()) - 0.5;
  const auto variances = run_variance(false, in, mask, divisor);
  const auto deviations = run_variance(true, in, mask, divisor);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    std::vector<Acc> elements;
    for (const std::int64_t i : outputs[o]) elements.push_back(static_cast<Acc>(in.get<T>(i)));
    const Part<Acc> whole = whole_of(elements);
    const Acc variance = whole.squares / static_cast<Acc>(divisor);
    const auto at = static_cast<std::int64_t>(o);
    const auto expect = [&](const Array& got, Acc expected, const char* what) {
      const T rounded = static_cast<T>(expected);
      const T value = got.get<T>(at);
      ASSERT_EQ(std::memcmp(&rounded, &value, sizeof value), 0)
          << what << " of " << in.dtype() << in.layout().sizes << " " << in.layout().name
          << " output " << o << ": expected " << static_cast<double>(rounded) << ", but got "
          << static_cast<double>(value);
    };
    expect(variances[0], variance, "variance");
    expect(deviations[0], std::sqrt(variance), "deviation");
    expect(variances[1], whole.sum / static_cast<Acc>(elements.size()), "mean");
  }
}

struct Case {
  Shape sizes;
  unsigned mask;
};

// Around the vectors, groups, packs, batches and chunks of kernels.
const Case kCases[] = {
    {{1}, 1},           {{5}, 1},         {{129}, 1},           {{1025}, 1},
    {{40001}, 1},       {{17, 300}, 2},   {{17, 300}, 1},       {{3, 33000}, 2},
    {{17000, 3}, 1},    {{9, 70}, 1},     {{40, 33}, 1},        {{4, 5, 6}, 0b101},
    {{4, 50, 6}, 0b10}, {{6, 7}, 0b11},   {{2, 3}, 0},          {{2, 12, 64}, 0b10},
    {{16400, 16}, 1},   {{1100, 132}, 2}, {{1100, 40}, 2},      {{64, 1000}, 1},
    {{300, 136}, 1},    {{2, 1030}, 2},   {{300, 2, 70}, 0b101}};

TEST(VarianceKernelTest, ComputesAsDocumentedWhateverTheLayout) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const Case& c : kCases) {
      for (const Layout& layout : testing::input_layouts(c.sizes)) {
        Array in(dtype, layout);
        fill_range(in, 3, 2, 3);
        dispatch(dtype, [&](auto tag) {
          using T = typename decltype(tag)::type;
          if constexpr (is_floating_point(dtype_of<T>)) expect_as_documented<T>(in, c.mask);
        });
      }
    }
  }
}

TEST(VarianceKernelTest, ComputesManyShortRowsAndColumns) {
  for (const Shape& sizes : many_short_rows()) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 3, 2, 3);
    expect_as_documented<float>(in, 2);
    Array half(bf16, padded_rows(sizes));
    fill_range(half, 3, 2, 3);
    expect_as_documented<bfloat16>(half, 2);
  }
  // Rows of a few elements, few rows, and columns that threads share.
  for (const std::int64_t length : {2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65, 128}) {
    for (const std::int64_t count : {1, 3, 4, 66, 1025}) {
      for (const Shape& sizes : {Shape{length, count}, Shape{count, length}}) {
        Array in(f32, contiguous(sizes));
        fill_range(in, 3, 2, 3);
        expect_as_documented<float>(in, sizes[0] == length ? 1 : 2);
        Array half(bf16, contiguous(sizes));
        fill_range(half, 3, 2, 3);
        expect_as_documented<bfloat16>(half, sizes[0] == length ? 1 : 2);
      }
    }
  }
  // The last ones are so few columns that a thread has one accumulator, or few rows without packs.
  for (const Shape& sizes : {Shape{300, 12738}, Shape{129, 12736}, Shape{300, 6369}, Shape{300, 65},
                             Shape{17000, 30}, Shape{33000, 2}, Shape{5, 1537}, Shape{8, 4097}}) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 3, 2, 3);
    expect_as_documented<float>(in, 1);
  }
  // Columns of one element an accumulator: all equal parts, or not; in packs, or not.
  for (const Shape& sizes :
       {Shape{16, 65536}, Shape{64, 65537}, Shape{77, 65536}, Shape{29, 65538}}) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 3, 2, 3);
    expect_as_documented<float>(in, 1);
  }
  // Every number of rows of a subtree, and a last thread with one of its columns.
  for (const std::int64_t length : {2, 3, 4, 5, 6, 7, 8, 9, 13, 22, 58, 65, 128}) {
    for (const std::int64_t width : {65535, 65536, 65793}) {
      Array half(bf16, contiguous({length, width}));
      fill_range(half, 3, 2, 3);
      expect_as_documented<bfloat16>(half, 1);
    }
    Array wide(f64, contiguous({3, length, 21847}));
    fill_range(wide, 3, 2, 3);
    expect_as_documented<double>(wide, 2);
  }
}

TEST(VarianceKernelTest, OneElementHasNoSpread) {
  for (const Shape& sizes : {Shape{1, 1003}, Shape{1003, 1}, Shape{501, 1, 2}}) {
    const unsigned mask = sizes[0] == 1 ? 1 : 2;
    for (const DType dtype : {f32, bf16}) {
      Array in(dtype, contiguous(sizes));
      fill_range(in, 3, 2, 3);
      for (const bool is_root : {false, true}) {
        const auto results = run_variance(is_root, in, mask, 0);
        for (std::int64_t i = 0; i < in.numel(); ++i) {
          ASSERT_TRUE(std::isnan(results[0].value(i))) << sizes << " " << i;
          ASSERT_EQ(results[1].value(i), in.value(i)) << sizes << " " << i;
        }
      }
    }
  }
}

// So many chunks that the last block has to merge results of merged results.
TEST(VarianceKernelTest, MergesManyChunks) {
  const std::int64_t length = 16384LL * 16384 + 70000;
  Array in(bf16, contiguous({length}));
  in.set(5, bfloat16(1.0f));
  in.set(length - 1, bfloat16(1.0f));
  const auto arrays = run_variance(false, in, 1, 1);
  EXPECT_EQ(arrays[0].value(0), 2);
}

TEST(VarianceKernelTest, RepeatsWhatIsNotFinite) {
  // Among results of a pack: only one of the outputs is repeated.
  for (const Shape& sizes :
       {Shape{2, 66}, Shape{3, 66}, Shape{7, 66}, Shape{30, 66}, Shape{3, 1027}, Shape{300, 66}}) {
    for (const bool by_row : {false, true}) {
      Array in(f32, by_row ? contiguous({sizes[1], sizes[0]}) : contiguous(sizes));
      fill_range(in, 5, 1, 2);
      const std::int64_t step = by_row ? 1 : sizes[1];
      const std::int64_t first = by_row ? 5 * sizes[0] : 5;
      for (std::int64_t k = 0; k < sizes[0]; ++k) in.set(first + k * step, k == 0 ? 3e38f : 2e38f);
      const auto arrays = run_variance(true, in, by_row ? 2 : 1, static_cast<double>(sizes[0]));
      const double others = static_cast<double>(sizes[0] - 1);
      const double count = static_cast<double>(sizes[0]);
      EXPECT_NEAR(arrays[0].value(5) / 1e38, std::sqrt(others) / count, 1e-6);
      EXPECT_NEAR(arrays[1].value(5) / 1e38, 2 + 1 / count, 1e-6);
      EXPECT_LT(arrays[0].value(4), 1);
    }
  }
  for (const Shape& sizes : {Shape{3, 300}, Shape{3, 20000}}) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 5, -3e38, 3e38);
    const auto deviations = run_variance(true, in, 2, static_cast<double>(sizes[1]));
    for (std::int64_t row = 0; row < 3; ++row) {
      EXPECT_NEAR(deviations[0].value(row) / 3e38, std::sqrt(1.0 / 3), 0.05);
      EXPECT_LT(std::abs(deviations[1].value(row)), 5e37);
    }
  }
}

}  // namespace
}  // namespace gantry::testing
