// index_scatter and index_offsets against loops, on every platform.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "kernels/indexing/indexing.hpp"
#include "tests/kernels/fill_integers.hpp"
#include "tests/kernels/kernel_arrays.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

using kernels::IndexRule;
using kernels::ScatterMode;
using kernels::Target;

// Indices on [low, high).
void fill_indices(Array& index, std::uint32_t seed, std::int64_t low, std::int64_t high) {
  fill_random(index, seed);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    const auto bits = static_cast<std::int64_t>(index.bits(i) * 2654435761u >> 7 & 0xffffff);
    const std::int64_t value = low + bits % (high - low);
    if (index.dtype() == i64) {
      index.set(i, value);
    } else {
      index.set(i, static_cast<std::int32_t>(value));
    }
  }
}

std::int64_t index_at(const Array& index, std::int64_t i) {
  return index.dtype() == i64 ? index.get<std::int64_t>(i) : index.get<std::int32_t>(i);
}

// Small positive integers, so that no order of operations rounds.
double combined(ScatterMode mode, double old, double value) {
  switch (mode) {
    case ScatterMode::replace:
      return value;
    case ScatterMode::add:
      return old + value;
    case ScatterMode::multiply:
      return old * value;
    case ScatterMode::largest:
      return std::max(old, value);
    case ScatterMode::smallest:
      return std::min(old, value);
  }
  return 0;
}

// Writes `count` slices along `dim` of an array in `layout`.
template <class T>
void expect_slices(const Layout& layout, int dim, std::int64_t count, DType index_dtype,
                   ScatterMode mode, int high) {
  Array out(dtype_of<T>, layout);
  fill_integers(out, 1, 1, high);
  Shape sizes = layout.sizes;
  sizes[dim] = count;
  Array in(dtype_of<T>, testing::transposed(sizes));
  fill_integers(in, 2, 1, high);
  Array index(index_dtype, testing::sliced({count}));
  const std::int64_t size = layout.sizes[dim];
  fill_indices(index, 3, -size, size);
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < out.numel(); ++i)
    wanted.push_back(static_cast<double>(out.get<T>(i)));
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    std::int64_t rest = i;
    Dims at = sizes;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      at[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    at[dim] = index_at(index, at[dim]);
    if (at[dim] < 0) at[dim] += size;
    std::int64_t to = 0;
    for (int d = 0; d < sizes.size(); ++d) to = to * layout.sizes[d] + at[d];
    double& place = wanted[static_cast<std::size_t>(to)];
    place = combined(mode, place, static_cast<double>(in.get<T>(i)));
  }
  const std::vector<Array> arrays = run_everywhere(
      {out, index, in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::index_scatter({"test", IndexRule::wrapping}, target, t[0], dim, t[1], t[2], mode);
      },
      layout.name);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    ASSERT_EQ(static_cast<double>(arrays[0].get<T>(i)), wanted[static_cast<std::size_t>(i)])
        << dtype_of<T> << " " << layout.name << " dim " << dim << " at " << i;
  }
}

TEST(IndexScatterTest, WritesSlicesInOrder) {
  for (const DType dtype : testing::kAllTypes) {
    if (dtype == bool_) continue;
    dispatch(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_same_v<T, bool>) {
        for (const ScatterMode mode : {ScatterMode::replace, ScatterMode::add, ScatterMode::largest,
                                       ScatterMode::smallest}) {
          for (int dim = 0; dim < 2; ++dim) {
            for (const Layout& layout : testing::output_layouts({6, 8})) {
              expect_slices<T>(layout, dim, 5, i64, mode, 4);
              expect_slices<T>(layout, dim, 40, i32, mode, 3);  // sorted on a GPU
            }
          }
        }
        expect_slices<T>(contiguous({6, 8}), 0, 5, i32, ScatterMode::multiply, 2);
        expect_slices<T>(contiguous({300}), 0, 100, i64, ScatterMode::add, 2);
        expect_slices<T>(contiguous({9, 512}), 0, 64, i64, ScatterMode::replace,
                         100);  // wide words
        // Threads of a GPU are side by side along the index, and fill a block with rows.
        expect_slices<T>(contiguous({9, 300}), 1, 100, i64, ScatterMode::replace, 100);
      }
    });
  }
}

// Sums round in the order of positions, in wide accesses and in narrow ones.
TEST(IndexScatterTest, SumsOfRowsRoundInOrder) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const std::int64_t columns : {1, 6, 64, 320, 8999, 9000}) {
      const std::int64_t rows = columns < 1000 ? 1000 : 100;
      Array out(dtype, contiguous({50, columns}));
      fill_range(out, 1, -4, 4);
      Array in(dtype, contiguous({rows, columns}));
      fill_range(in, 2, -4, 4);
      Array index(i64, contiguous({rows}));
      fill_indices(index, 3, -50, 50);
      for (const ScatterMode mode :
           {ScatterMode::add, ScatterMode::multiply, ScatterMode::replace}) {
        run_everywhere(
            {out, index, in},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::index_scatter({"test", IndexRule::wrapping}, target, t[0], 0, t[1], t[2],
                                     mode);
            },
            "rows");
      }
    }
  }
}

// Sums along rows, whose index one block sorts unless it is long, or every block if they are few.
TEST(IndexScatterTest, SumsAlongRowsRoundInOrder) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const auto& [sizes, count] :
         {std::pair{Shape{40, 50}, 200}, std::pair{Shape{33, 400}, 64},
          std::pair{Shape{2100, 64}, 64}, std::pair{Shape{9, 5, 63}, 63},
          std::pair{Shape{34, 300}, 9000}, std::pair{Shape{9000, 64}, 64},
          std::pair{Shape{3, 70000}, 9000}, std::pair{Shape{300, 400}, 2000},
          std::pair{Shape{3, 900}, 5120}, std::pair{Shape{3, 900}, 5121},
          std::pair{Shape{133, 300}, 1500}}) {
      const int dim = sizes.size() - 1;
      Array out(dtype, contiguous(sizes));
      fill_range(out, 1, -4, 4);
      Shape in_sizes = sizes;
      in_sizes[dim] = count;
      Array in(dtype, contiguous(in_sizes));
      fill_range(in, 2, -4, 4);
      Array index(i32, contiguous({count}));
      fill_indices(index, 3, -sizes[dim], sizes[dim]);
      for (const ScatterMode mode :
           {ScatterMode::add, ScatterMode::multiply, ScatterMode::largest}) {
        run_everywhere(
            {out, index, in},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::index_scatter({"test", IndexRule::wrapping}, target, t[0], dim, t[1], t[2],
                                     mode);
            },
            "rows");
      }
    }
  }
}

// Sums whose order matters, of fibres that a block sorts: rows, columns, and the longest ones.
// Longer ones have buckets on a GPU, in shared memory for up to eight destinations a write.
TEST(IndexScatterTest, SumsOfFibresRoundInOrder) {
  struct Case {
    Shape sizes;
    int dim;
    std::int64_t length;
  };
  for (const Case& fibres :
       {Case{{4, 100}, 1, 40},        Case{{600, 70}, 1, 300},    Case{{2, 1000}, 1, 8704},
        Case{{2, 1000}, 1, 8705},     Case{{1, 60000}, 1, 600},   Case{{513, 40}, 0, 513},
        Case{{5, 128, 63}, 1, 128},   Case{{5, 300, 6}, 1, 1500}, Case{{2, 70, 3, 50}, 1, 90},
        Case{{2, 70, 3, 5}, 2, 90},   Case{{5000, 129}, 1, 129},  Case{{129, 5000}, 0, 129},
        Case{{5, 128, 1100}, 1, 128}, Case{{4095}, 0, 9000},      Case{{8192}, 0, 9000},
        Case{{8193}, 0, 9000},        Case{{3, 5000}, 1, 9000},   Case{{9000, 3}, 0, 9000},
        Case{{72000}, 0, 9000},       Case{{72001}, 0, 9000},     Case{{600000}, 0, 80000}}) {
    Shape in_sizes = fibres.sizes;
    in_sizes[fibres.dim] = fibres.length;
    const std::int64_t size = fibres.sizes[fibres.dim];
    for (const DType dtype : {f16, bf16, f32, f64}) {
      Array out(dtype, contiguous(fibres.sizes));
      fill_range(out, 1, -4, 4);
      Array in(dtype, contiguous(in_sizes));
      fill_range(in, 2, -4, 4);
      Array index(dtype == f32 ? i32 : i64, contiguous(in_sizes));
      fill_indices(index, 3, -size, size);
      for (const ScatterMode mode : {ScatterMode::add, ScatterMode::multiply}) {
        run_everywhere(
            {out, index, in},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::scatter({"test", IndexRule::wrapping}, target, t[0], fibres.dim, t[1], t[2],
                               mode);
            },
            "fibres");
      }
    }
  }
}

// Sums of few writes, whose destinations have owners on a GPU: parts of a vote, of a warp and of a
// block, several fibres of a block, and the longest fibres for each dtype. The last two have
// buckets. Half of the writes go to one destination.
TEST(IndexScatterTest, SumsOfOwnersRoundInOrder) {
  struct Case {
    Shape sizes;
    int dim;
    std::int64_t length;
  };
  for (const Case& fibres :
       {Case{{1}, 0, 1},           Case{{3, 31}, 1, 31},     Case{{9, 32}, 1, 32},
        Case{{17, 33}, 1, 33},     Case{{5, 256}, 1, 257},   Case{{5, 257}, 1, 255},
        Case{{32, 2049}, 1, 2049}, Case{{32, 1025}, 0, 32},  Case{{33, 100}, 0, 33},
        Case{{256, 70}, 0, 256},   Case{{3, 40, 7}, 1, 64},  Case{{2, 8}, 1, 6112},
        Case{{2, 8}, 1, 6113},     Case{{2, 8}, 1, 8160},    Case{{2, 8}, 1, 8161},
        Case{{2, 8}, 1, 4064},     Case{{2, 8}, 1, 4065},    Case{{2, 80}, 1, 10},
        Case{{2, 81}, 1, 10},      Case{{2, 5000}, 1, 9000}, Case{{90000}, 0, 9000}}) {
    Shape in_sizes = fibres.sizes;
    in_sizes[fibres.dim] = fibres.length;
    const std::int64_t size = fibres.sizes[fibres.dim];
    for (const DType dtype : {f16, bf16, f32, f64}) {
      Array out(dtype, contiguous(fibres.sizes));
      fill_range(out, 1, -4, 4);
      Array in(dtype, testing::transposed(in_sizes));
      fill_range(in, 2, -4, 4);
      const DType index_dtype = dtype == f32 ? i32 : i64;
      Array index(index_dtype, contiguous(in_sizes));
      fill_indices(index, 3, -size, size);
      Array shared(index_dtype, testing::sliced({fibres.length}));
      fill_indices(shared, 4, -size, size);
      for (std::int64_t i = 0; i < index.numel(); i += 2) {
        if (index_dtype == i32) {
          index.set<std::int32_t>(i, -1);
        } else {
          index.set<std::int64_t>(i, -1);
        }
      }
      for (const ScatterMode mode :
           {ScatterMode::add, ScatterMode::largest, ScatterMode::smallest}) {
        run_everywhere(
            {out, index, in, shared},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::scatter({"test", IndexRule::wrapping}, target, t[0], fibres.dim, t[1], t[2],
                               mode);
              kernels::index_scatter({"test", IndexRule::wrapping}, target, t[0], fibres.dim, t[3],
                                     t[2], mode);
            },
            "owners of " + fibres.sizes.str());
      }
    }
  }
}

// An untouched element keeps its bits, and an index out of range writes nothing: owners, buckets.
TEST(IndexScatterTest, OneOfManyWritesHasAnIndexOutOfRange) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const std::int64_t size : {40, 9000}) {
    Array out(f32, contiguous({2, size}));
    fill_range(out, 1, -4, 4);
    Array index(i64, contiguous({2, size}));
    index.set<std::int64_t>(size + 30, size);
    Array in(f32, contiguous({2, size}));
    fill_range(in, 2, -4, 4);
    std::vector<Array> arrays{out, index, in};
    testing::run_on_device(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
      kernels::scatter({"test"}, target, t[0], 1, t[1], t[2], ScatterMode::add);
      EXPECT_THROW(target.stream().synchronize(), IndexError);
    });
    for (std::int64_t i = 0; i < 2 * size; ++i) {
      if (i % size == 0) continue;
      EXPECT_EQ(arrays[0].bits(i), out.bits(i)) << size << " at " << i;
    }
  }
}

// A few writes to many places: a GPU sorts them, as slots for all places would cost more.
TEST(IndexScatterTest, FewWritesToManyPlaces) {
  constexpr std::int64_t kPlaces = 1'500'000;
  Array out(f32, contiguous({kPlaces}));
  Array in(f32, contiguous({100}));
  fill_range(in, 2, -4, 4);
  Array index(i64, contiguous({100}));
  fill_indices(index, 3, -kPlaces, kPlaces);
  for (std::int64_t i = 0; i < 100; i += 3) index.set<std::int64_t>(i, kPlaces - 1);
  for (const ScatterMode mode : {ScatterMode::add, ScatterMode::replace}) {
    run_everywhere(
        {out, index, in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::index_scatter({"test", IndexRule::wrapping}, target, t[0], 0, t[1], t[2], mode);
          kernels::scatter({"test", IndexRule::wrapping}, target, t[0], 0, t[1], t[2], mode);
        },
        "places");
  }
}

TEST(IndexOffsetsTest, AddUpPositionsTimesStrides) {
  for (const DType dtype : {i32, i64}) {
    Array first(dtype, testing::expanded({40, 50}));
    fill_indices(first, 1, -7, 7);
    Array second(i64, testing::transposed({40, 50}));
    fill_indices(second, 2, -9, 9);
    const std::vector<Array> arrays = run_everywhere(
        {Array(i64, contiguous({40, 50})), Array(i64, contiguous({40, 50})), first, second},
        [](const Target& target, const std::vector<TensorRef>& t) {
          const kernels::OffsetTerm a{t[2], {"test", IndexRule::wrapping, 0}, 7, 100};
          const kernels::OffsetTerm b{t[3], {"test", IndexRule::wrapping, 1}, 9, 3};
          kernels::index_offsets(target, t[0], a, &b);
          kernels::index_offsets(target, t[1], a, nullptr);
        },
        "offsets");
    for (std::int64_t i = 0; i < 2000; ++i) {
      const std::int64_t a = (index_at(first, i) + 7) % 7 * 100;
      const std::int64_t b = (index_at(second, i) + 9) % 9 * 3;
      ASSERT_EQ(arrays[0].get<std::int64_t>(i), a + b);
      ASSERT_EQ(arrays[1].get<std::int64_t>(i), a);
    }
  }
}

TEST(IndexOffsetsTest, AnIndexOutOfRangeIsReportedOnceAndSkippedAfterwards) {
  GANTRY_REQUIRE_DEVICES(1);
  Array index(i64, contiguous({3}));
  index.set<std::int64_t>(0, 1);
  index.set<std::int64_t>(1, 4);
  index.set<std::int64_t>(2, -1);
  Array data(f32, contiguous({4}));
  for (int i = 0; i < 4; ++i) data.set(i, static_cast<float>(10 + i));
  std::vector<Array> arrays{Array(i64, contiguous({3})), index, data, Array(f32, contiguous({3}))};
  testing::run_on_device(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
    const kernels::OffsetTerm term{t[1], {"test", IndexRule::wrapping, 5}, 4, 1};
    kernels::index_offsets(target, t[0], term, nullptr);
    const auto text = [&]() -> std::string {
      try {
        target.stream().synchronize();
      } catch (const IndexError& error) {
        return error.what();
      }
      return "no IndexError";
    };
    EXPECT_EQ(text(), "test on cuda:0: index 4 is out of bounds for dimension 5 with size 4");
    kernels::index_select({"test", IndexRule::offsets}, target, t[3], t[2], 0, t[0]);
    EXPECT_EQ(text(), "no IndexError");
  });
  EXPECT_EQ(arrays[0].get<std::int64_t>(1), -1);
  EXPECT_EQ(arrays[3].get<float>(0), 11);
  EXPECT_EQ(arrays[3].get<float>(1), 0);
  EXPECT_EQ(arrays[3].get<float>(2), 13);
}

}  // namespace
}  // namespace gantry::testing
