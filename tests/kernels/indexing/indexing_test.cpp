#include "kernels/indexing/indexing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>

#include "tests/kernels/kernel_arrays.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// Indices on [0, high), with many duplicates if `high` is small.
void fill_indices(Array& index, std::uint32_t seed, std::int64_t high) {
  fill_random(index, seed);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    const auto draw = static_cast<std::int64_t>(index.bits(i) * 2654435761u >> 7 & 0xffffff);
    const std::int64_t value = draw % high;
    if (index.dtype() == i64)
      index.set(i, value);
    else
      index.set(i, static_cast<std::int32_t>(value));
  }
}

std::int64_t index_at(const Array& index, std::int64_t i) {
  return index.dtype() == i64 ? index.get<std::int64_t>(i) : index.get<std::int32_t>(i);
}

// The coordinates of the row-major index `i`.
Dims coordinates(const Shape& sizes, std::int64_t i) {
  Dims result = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    result[d] = i % sizes[d];
    i /= sizes[d];
  }
  return result;
}

std::int64_t row_major(const Shape& sizes, const Dims& at) {
  std::int64_t result = 0;
  for (int d = 0; d < sizes.size(); ++d) result = result * sizes[d] + at[d];
  return result;
}

TEST(IndexSelectKernelTest, SelectsSlicesInEveryLayout) {
  const Shape sizes = {6, 5, 8};
  for (const DType dtype : {u8, bf16, f32, f64}) {
    for (const DType index_dtype : {i32, i64}) {
      for (const Layout& layout : testing::input_layouts(sizes)) {
        for (int dim = 0; dim < 3; ++dim) {
          Array in(dtype, layout);
          fill_random(in, 1);
          Array index(index_dtype, dim == 0 ? testing::sliced({11}) : contiguous({11}));
          fill_indices(index, 2, sizes[dim]);
          Shape out_sizes = sizes;
          out_sizes[dim] = 11;
          const std::vector<Array> arrays = run_everywhere(
              {Array(dtype, contiguous(out_sizes)), in, index},
              [&](const Target& target, const std::vector<TensorRef>& t) {
                kernels::index_select({"index_select"}, target, t[0], t[1], dim, t[2]);
              },
              layout.name);
          for (std::int64_t i = 0; i < out_sizes.product(); ++i) {
            Dims at = coordinates(out_sizes, i);
            at[dim] = index_at(index, at[dim]);
            ASSERT_EQ(arrays[0].bits(i), in.bits(row_major(sizes, at)))
                << dtype << " " << layout.name << " dim " << dim << " at " << i;
          }
        }
      }
    }
  }
}

TEST(IndexSelectKernelTest, MovesLongRowsInWideWords) {
  for (const DType dtype : {u8, f16, f32, i64}) {
    for (const std::int64_t columns : {64, 65}) {
      Array in(dtype, contiguous({20, columns}));
      fill_random(in, 4);
      Array index(i64, contiguous({30}));
      fill_indices(index, 5, 20);
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype, contiguous({30, columns})), in, index},
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::index_select({"index_select"}, target, t[0], t[1], 0, t[2]);
          },
          "rows");
      for (std::int64_t i = 0; i < 30 * columns; ++i) {
        const std::int64_t row = index_at(index, i / columns);
        ASSERT_EQ(arrays[0].bits(i), in.bits(row * columns + i % columns));
      }
    }
  }
}

// More indices than are read at a time, for rows of all lengths.
TEST(IndexSelectKernelTest, ManyIndices) {
  for (const Shape& sizes : {Shape{5, 40, 3}, Shape{2, 40, 1}, Shape{40, 300}}) {
    const int dim = sizes.size() - 2;
    Array in(f32, contiguous(sizes));
    fill_random(in, 1);
    Array index(i32, contiguous({700}));
    fill_indices(index, 2, 40);
    Shape out_sizes = sizes;
    out_sizes[dim] = 700;
    const std::vector<Array> arrays = run_everywhere(
        {Array(f32, contiguous(out_sizes)), in, index},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::index_select({"index_select"}, target, t[0], t[1], dim, t[2]);
        },
        "many");
    for (std::int64_t i = 0; i < out_sizes.product(); ++i) {
      Dims at = coordinates(out_sizes, i);
      at[dim] = index_at(index, at[dim]);
      ASSERT_EQ(arrays[0].bits(i), in.bits(row_major(sizes, at))) << sizes << " at " << i;
    }
  }
}

// Many rows, which a GPU holds in shared memory if they are long, but not too long. They are whole
// words of 16 bytes, or none.
TEST(GatherKernelTest, TakesElementsAlongRows) {
  struct Case {
    Shape sizes;
    std::int64_t count;
  };
  for (const auto& [sizes, count] :
       {Case{{264, 1023}, 300}, Case{{263, 1024}, 1024}, Case{{264, 1024}, 256},
        Case{{265, 1040}, 1100}, Case{{7, 80, 2051}, 600}, Case{{264, 12032}, 3008},
        Case{{264, 12033}, 3009}}) {
    const int dim = sizes.size() - 1;
    Shape out_sizes = sizes;
    out_sizes[dim] = count;
    for (const DType dtype : {u8, bf16, f32, f64}) {
      for (const Layout& layout : {contiguous(sizes), testing::shifted(sizes)}) {
        Array in(dtype, layout);
        fill_random(in, 1);
        const DType index_dtype = dtype == f32 ? i32 : i64;
        Array index(index_dtype, contiguous({count}));
        fill_indices(index, 2, sizes[dim]);
        Array each(index_dtype, contiguous(out_sizes));
        fill_indices(each, 3, sizes[dim]);
        const std::vector<Array> arrays = run_everywhere(
            {Array(dtype, contiguous(out_sizes)), Array(dtype, contiguous(out_sizes)), in, index,
             each},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::index_select({"test"}, target, t[0], t[2], dim, t[3]);
              kernels::gather({"test"}, target, t[1], t[2], dim, t[4]);
            },
            layout.name);
        const std::int64_t rows = sizes.product() / sizes[dim];
        for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1}) {
          for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t at = row * count + k;
            ASSERT_EQ(arrays[0].bits(at), in.bits(row * sizes[dim] + index_at(index, k)));
            ASSERT_EQ(arrays[1].bits(at), in.bits(row * sizes[dim] + index_at(each, at)));
          }
        }
      }
    }
  }
}

// Rows of every length, in the largest words that divide them.
TEST(IndexSelectKernelTest, SelectsRowsOfAnyLength) {
  for (const DType dtype : {u8, bf16, f32, f64}) {
    for (const std::int64_t length : {1, 2, 3, 4, 6, 7, 8, 9, 12, 15, 16, 17, 20, 63, 1001}) {
      for (const Layout& layout :
           {contiguous({9, 50, length}), testing::shifted({9, 50, length})}) {
        Array in(dtype, layout);
        fill_random(in, 1);
        Array index(i64, contiguous({41}));
        fill_indices(index, 2, 50);
        const std::vector<Array> arrays = run_everywhere(
            {Array(dtype, contiguous({9, 41, length})), in, index},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::index_select({"test"}, target, t[0], t[1], 1, t[2]);
            },
            layout.name);
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const std::int64_t row = i / length;
          const std::int64_t from = (row / 41 * 50 + index_at(index, row % 41)) * length;
          ASSERT_EQ(arrays[0].bits(i), in.bits(from + i % length)) << dtype << " " << length;
        }
      }
    }
  }
}

TEST(GatherKernelTest, TakesElementsAlongADim) {
  const Shape sizes = {6, 5, 8};
  for (const Shape& index_sizes : {Shape{6, 5, 8}, Shape{3, 2, 4}}) {
    for (const Layout& layout : testing::input_layouts(sizes)) {
      for (int turn = 0; turn < 6; ++turn) {
        const int dim = turn % 3;
        Shape wanted = index_sizes;
        wanted[dim] = 9;
        Array in(i16, layout);
        fill_random(in, 1);
        Array index(i64, turn < 3 ? testing::transposed(wanted) : contiguous(wanted));
        fill_indices(index, 3, sizes[dim]);
        const std::vector<Array> arrays = run_everywhere(
            {Array(i16, contiguous(wanted)), in, index},
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::gather({"gather"}, target, t[0], t[1], dim, t[2]);
            },
            layout.name);
        for (std::int64_t i = 0; i < wanted.product(); ++i) {
          Dims at = coordinates(wanted, i);
          at[dim] = index_at(index, i);
          ASSERT_EQ(arrays[0].bits(i), in.bits(row_major(sizes, at))) << layout.name << " at " << i;
        }
      }
    }
  }
}

template <class T>
T plus(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (is_floating_point(dtype_of<T>)) {
    using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return static_cast<T>(static_cast<Acc>(a) + static_cast<Acc>(b));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

// Duplicates are applied in order of increasing position, bit for bit.
template <class T>
void expect_scattered(const Layout& out_layout, const Layout& index_layout, int dim,
                      std::int64_t range, bool accumulate) {
  Array out(dtype_of<T>, out_layout);
  fill_range(out, 1, 0, 4);
  Array in(dtype_of<T>, contiguous(index_layout.sizes));
  fill_range(in, 2, 0, 4);
  Array index(i64, index_layout);
  fill_indices(index, 3, range);
  std::vector<T> expected;
  for (std::int64_t i = 0; i < out.numel(); ++i) expected.push_back(out.get<T>(i));
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    Dims at = coordinates(index_layout.sizes, i);
    at[dim] = index_at(index, i);
    const auto to = static_cast<std::size_t>(row_major(out_layout.sizes, at));
    expected[to] = accumulate ? plus<T>(expected[to], in.get<T>(i)) : in.get<T>(i);
  }
  const std::vector<Array> arrays = run_everywhere(
      {out, index, in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scatter({"scatter"}, target, t[0], dim, t[1], t[2],
                         accumulate ? kernels::ScatterMode::add : kernels::ScatterMode::replace);
      },
      out_layout.name);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    ASSERT_EQ(static_cast<double>(arrays[0].get<T>(i)),
              static_cast<double>(static_cast<T>(expected[static_cast<std::size_t>(i)])))
        << dtype_of<T> << " " << out_layout.name << " dim " << dim << " at " << i;
  }
}

TEST(ScatterKernelTest, WritesDuplicatesInOrderOfPosition) {
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      for (const bool accumulate : {false, true}) {
        for (int dim = 0; dim < 2; ++dim) {
          for (const Layout& layout : testing::output_layouts({7, 9})) {
            expect_scattered<T>(layout, contiguous(dim == 0 ? Shape{20, 9} : Shape{7, 20}), dim, 3,
                                accumulate);
          }
          expect_scattered<T>(contiguous({7, 9}), testing::transposed({5, 6}), dim, 7, accumulate);
        }
        // Dense rows of several lengths lie in shared memory on a GPU, a few or many at a time.
        expect_scattered<T>(contiguous({300, 65}), contiguous({290, 128}), 1, 65, accumulate);
        expect_scattered<T>(contiguous({41, 300}), contiguous({40, 120}), 1, 300, accumulate);
        expect_scattered<T>(contiguous({3, 90}), contiguous({3, 129}), 1, 90, accumulate);
        // Few long fibres take another kernel on a GPU.
        expect_scattered<T>(contiguous({1000}), contiguous({3000}), 0, 50, accumulate);
        expect_scattered<T>(testing::sliced({3, 1000}), contiguous({3, 3000}), 1, 50, accumulate);
      }
    });
  }
}

TEST(ScatterKernelTest, SumsOfBoolMemoryAreZeroOrOne) {
  for (const std::int64_t size : {8, 1000}) {
    Array out(bool_, contiguous({size}));
    Array in(bool_, contiguous({size}));
    Array index(i64, contiguous({size}));
    for (std::int64_t i = 0; i < size; ++i) {
      out.set(i, static_cast<std::uint8_t>(i % 2 == 0 ? 0 : 6));
      in.set(i, static_cast<std::uint8_t>(i % 3 == 0 ? 0 : 250));
      index.set(i, i);
    }
    const std::vector<Array> arrays = run_everywhere(
        {out, index, in},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scatter({"scatter"}, target, t[0], 0, t[1], t[2], kernels::ScatterMode::add);
        },
        "bool");
    for (std::int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(arrays[0].get<std::uint8_t>(i), i % 2 == 0 && i % 3 == 0 ? 0 : 1) << i;
    }
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const IndexError& error) {
    return error.what();
  }
  return "no IndexError";
}

TensorRef vector_ref(void* data, DType dtype, std::int64_t size) {
  TensorRef result;
  result.data = data;
  result.dtype = dtype;
  result.ndim = 1;
  result.sizes[0] = size;
  result.strides[0] = 1;
  return result;
}

// Indices are read before their memory is written, if it is written.
TEST(ScatterKernelTest, AnOutputMayBeItsIndex) {
  constexpr std::int64_t kSize = 200;
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < kSize; ++i) out.push_back(kSize - 1 - i);
  const std::vector<std::int64_t> in(kSize, std::int64_t{1} << 40);
  const TensorRef to = vector_ref(out.data(), i64, kSize);
  const TensorRef from = vector_ref(const_cast<std::int64_t*>(in.data()), i64, kSize);
  kernels::scatter({"scatter"}, Target::cpu(), to, 0, to, from, kernels::ScatterMode::replace);
  EXPECT_EQ(out, in);
}

TEST(IndexFaultTest, IsImmediateOnTheCpuAndChangesNothing) {
  float in[3] = {1, 2, 3};
  float out[2] = {7, 7};
  for (const std::int64_t bad : {5, 3, -1, -4}) {
    std::int64_t index[2] = {0, bad};
    const std::string expected =
        "index " + std::to_string(bad) + " is out of bounds for dimension 0 with size 3";
    EXPECT_THAT(message_of([&] {
                  kernels::index_select({"index_select"}, Target::cpu(), vector_ref(out, f32, 2),
                                        vector_ref(in, f32, 3), 0, vector_ref(index, i64, 2));
                }),
                ::testing::HasSubstr(expected));
    EXPECT_THAT(message_of([&] {
                  kernels::gather({"gather"}, Target::cpu(), vector_ref(out, f32, 2),
                                  vector_ref(in, f32, 3), 0, vector_ref(index, i64, 2));
                }),
                ::testing::HasSubstr(expected));
    EXPECT_THAT(message_of([&] {
                  kernels::scatter({"scatter"}, Target::cpu(), vector_ref(in, f32, 3), 0,
                                   vector_ref(index, i64, 2), vector_ref(out, f32, 2),
                                   kernels::ScatterMode::add);
                }),
                ::testing::HasSubstr(expected));
  }
  EXPECT_THAT(out, ::testing::ElementsAre(7, 7));
  EXPECT_THAT(in, ::testing::ElementsAre(1, 2, 3));
}

TEST(IndexFaultTest, IsThrownAtTheNextSynchronizationOfADevice) {
  GANTRY_REQUIRE_DEVICES(1);
  Array in(f32, contiguous({3, 4}));
  fill_range(in, 1, 1, 2);
  Array index(i32, contiguous({2}));
  index.set(0, 1);
  index.set(1, 5);
  for (int round = 0; round < 2; ++round) {
    std::vector<Array> arrays{Array(f32, contiguous({2, 4})), in, index};
    EXPECT_THAT(
        message_of([&] {
          testing::run_on_device(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::index_select({"index_select"}, target, t[0], t[1], 0, t[2]);
          });
        }),
        ::testing::HasSubstr(
            "index_select on cuda:0: index 5 is out of bounds for dimension 0 with size 3"));
  }
  // The device is still usable.
  index.set(1, 2);
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({2, 4})), in, index},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::index_select({"index_select"}, target, t[0], t[1], 0, t[2]);
      },
      "after a fault");
  EXPECT_EQ(arrays[0].bits(4), in.bits(8));
}

TEST(IndexFaultTest, NamesTheFirstOperationThatFailed) {
  GANTRY_REQUIRE_DEVICES(1);
  std::vector<Array> arrays{Array(f32, contiguous({1})), Array(f32, contiguous({3})),
                            Array(i64, contiguous({1})), Array(i64, contiguous({1}))};
  fill_range(arrays[1], 1, 1, 2);
  arrays[2].set<std::int64_t>(0, 7);
  arrays[3].set<std::int64_t>(0, 8);
  EXPECT_THAT(message_of([&] {
                testing::run_on_device(
                    arrays, [](const Target& target, const std::vector<TensorRef>& t) {
                      kernels::gather({"gather"}, target, t[0], t[1], 0, t[2]);
                      kernels::index_select({"index_select"}, target, t[0], t[1], 0, t[3]);
                    });
              }),
              ::testing::HasSubstr("gather on cuda:0: index 7 is out of bounds for dimension 0"));
}

TEST(IndexFaultTest, DoesNotAffectOtherElements) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const bool gathers : {true, false}) {
    std::vector<Array> arrays{Array(f32, contiguous({4})), Array(f32, contiguous({4})),
                              Array(i64, contiguous({4}))};
    for (std::int64_t i = 0; i < 4; ++i) {
      arrays[0].set(i, -1.0f);
      arrays[1].set(i, static_cast<float>(10 + i));
      arrays[2].set<std::int64_t>(i, 3 - i);
    }
    arrays[2].set<std::int64_t>(1, 99);
    EXPECT_EQ(message_of([&] {
                testing::run_on_device(
                    arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
                      if (gathers)
                        kernels::gather({"gather"}, target, t[0], t[1], 0, t[2]);
                      else
                        kernels::scatter({"scatter"}, target, t[0], 0, t[2], t[1],
                                         kernels::ScatterMode::replace);
                      // Clears the fault, so that the test can read the output.
                      EXPECT_THAT(message_of([&] { target.stream().synchronize(); }),
                                  ::testing::HasSubstr("index 99 is out of bounds"));
                    });
              }),
              "no IndexError");
    const std::vector<float> expected =
        gathers ? std::vector<float>{13, 0, 11, 10} : std::vector<float>{13, 12, -1, 10};
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(arrays[0].get<float>(i), expected[static_cast<std::size_t>(i)]) << gathers << i;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
