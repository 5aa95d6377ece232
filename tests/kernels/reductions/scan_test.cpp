#include "kernels/reductions/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::ScanOp;
using kernels::Target;

// Note [Scan order], written out: the value before unit `unit` of a level, and the totals of
// groups.
template <class Acc>
std::optional<Acc> scan_before(const std::vector<Acc>& units, std::size_t unit,
                               const std::function<Acc(Acc, Acc)>& combine) {
  const std::size_t group = unit / 16;
  std::optional<Acc> before;
  if (group > 0) {
    std::vector<Acc> totals;
    for (std::size_t g = 0; g < group; ++g) {
      Acc total = units[16 * g];
      for (std::size_t i = 1; i < 16; ++i) total = combine(total, units[16 * g + i]);
      totals.push_back(total);
    }
    totals.push_back(Acc{});  // the group of `unit`, whose total is not used
    before = scan_before<Acc>(totals, group, combine);
  }
  std::optional<Acc> running;
  for (std::size_t i = 16 * group; i < unit; ++i)
    running = running ? combine(*running, units[i]) : units[i];
  if (!running) return before;
  return before ? combine(*before, *running) : *running;
}

template <class Acc>
std::vector<Acc> scan_in_order(const std::vector<Acc>& elements,
                               const std::function<Acc(Acc, Acc)>& combine) {
  std::vector<Acc> result;
  std::optional<Acc> before;
  std::vector<Acc> totals;
  Acc running{};
  for (std::size_t k = 0; k < elements.size(); ++k) {
    if (k % 16 == 0 && k > 0) {
      totals.push_back(running);
      totals.push_back(Acc{});
      before = scan_before<Acc>(totals, k / 16, combine);
      totals.pop_back();
    }
    running = k % 16 == 0 ? elements[k] : combine(running, elements[k]);
    result.push_back(before ? combine(*before, running) : running);
  }
  return result;
}

template <class T>
void expect_running(bool product, const Layout& layout, int dim) {
  using Out = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;
  using Acc = std::conditional_t<std::is_same_v<T, float>, double, Accumulator<T>>;
  Array in(dtype_of<T>, layout);
  fill_range(in, 4, is_floating_point(dtype_of<T>) ? -1.5 : 0, 1.5);
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<Out>, contiguous(layout.sizes)), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], dim);
      },
      layout.name);
  const std::function<Acc(Acc, Acc)> combine = product ? multiply<Acc> : add<Acc>;
  for (const auto& fibre : members(layout.sizes, 1u << dim)) {
    std::vector<Acc> elements;
    for (const std::int64_t i : fibre) elements.push_back(static_cast<Acc>(in.get<T>(i)));
    const std::vector<Acc> results = scan_in_order<Acc>(elements, combine);
    for (std::size_t k = 0; k < fibre.size(); ++k) {
      const Out expected = static_cast<Out>(results[k]);
      const Out got = arrays[0].get<Out>(fibre[k]);
      ASSERT_EQ(std::memcmp(&expected, &got, sizeof got), 0)
          << layout.name << layout.sizes << dim << " at " << k << ": expected "
          << static_cast<double>(expected) << ", but got " << static_cast<double>(got);
    }
  }
}

TEST(ScanKernelTest, ANonZeroBoolByteCountsAsOne) {
  const auto [loose, strict] = loose_and_strict_bools(contiguous({2, 3000}));
  const auto run = [](const Array& in, bool product) {
    return run_everywhere(
        {Array(i64, contiguous({2, 3000})), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], 1);
        },
        "bool");
  };
  for (const bool product : {false, true}) {
    EXPECT_TRUE(run(loose, product)[0].bytes() == run(strict, product)[0].bytes());
  }
}

TEST(ScanKernelTest, ScansInTheDocumentedOrderWhateverTheLayout) {
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      for (const bool product : {false, true}) {
        for (int dim = 0; dim < 2; ++dim) {
          for (const Layout& layout : testing::input_layouts({9, 40})) {
            expect_running<T>(product, layout, dim);
          }
          expect_running<T>(product, contiguous({2, 3000}), dim);
        }
      }
    });
  }
}

TEST(ScanKernelTest, ScansFibresOfEveryLength) {
  for (const std::int64_t length : {1,   2,   15,   16,   17,   31,   32,   33,    255,   256,  257,
                                    511, 513, 4095, 4096, 4097, 4112, 8193, 65536, 65537, 70001}) {
    expect_running<float>(false, contiguous({2, length}), 1);
    expect_running<float>(false, testing::shifted({3, length}), 1);
    if (length > 9000) continue;
    expect_running<bfloat16>(false, contiguous({2, length}), 1);
    expect_running<std::uint8_t>(false, contiguous({2, length}), 1);
    expect_running<double>(true, contiguous({5, length}), 1);
    expect_running<float>(false, contiguous({length, 5}), 0);
    expect_running<float>(false, contiguous({length, 33}), 0);
    expect_running<bool>(false, contiguous({length, 40}), 0);
    // Rows and columns side by side, of which the last ones are few.
    expect_running<float>(true, contiguous({19, length}), 1);
    expect_running<float>(false, contiguous({19, length}), 1);
    expect_running<std::int64_t>(length % 2 == 0, contiguous({19, length}), 1);
    expect_running<bfloat16>(false, testing::sliced({2, 131, std::min<std::int64_t>(length, 300)}),
                             2);
    expect_running<std::int16_t>(false, contiguous({2, length, 9}), 1);
    expect_running<double>(false, testing::transposed({12, length}), 0);
  }
  // Rows of several tiles that begin on 16 bytes, whatever their last tile has.
  for (const std::int64_t length : {4097, 4112, 8191, 12288, 70001}) {
    for (const bool product : {false, true}) {
      expect_running<float>(product, contiguous({1, length}), 1);
      expect_running<bfloat16>(product, contiguous({1, length}), 1);
      expect_running<float16>(product, contiguous({1, length}), 1);
    }
    expect_running<float>(false, contiguous({3, length / 8 * 8}), 1);
    expect_running<bfloat16>(false, contiguous({3, length / 8 * 8}), 1);
  }
  // Blocks of several rows: whole vectors, rows that begin within one, and a last block of fewer.
  for (const std::int64_t length : {2, 6, 16, 20, 33, 48, 63, 64, 512}) {
    expect_running<float>(false, contiguous({300, length}), 1);
    expect_running<bfloat16>(length % 2 == 0, testing::shifted({300, length}), 1);
    expect_running<std::int8_t>(false, contiguous({300, length}), 1);
    expect_running<std::int64_t>(false, contiguous({5, 60, length}), 2);
    expect_running<double>(length % 2 == 1, contiguous({300, length}), 1);
  }
  for (const std::int64_t length : {1000, 1025, 2047, 2048}) {
    expect_running<float>(false, contiguous({7, length}), 1);
    expect_running<float16>(true, contiguous({7, length}), 1);
  }
  expect_running<float>(false, contiguous({20, 2100}), 0);
  // Columns of which a GPU gives one or several to a thread, and columns that are too long for it.
  for (const std::int64_t length : {2, 3, 4, 5, 15, 33, 256, 257}) {
    const Shape sizes = length > 200      ? Shape{length, 65600}
                        : length % 2 == 0 ? Shape{length, 65611}
                                          : Shape{length, 2, 33000};
    const bool product = length == 33;
    const auto scan = [&](DType dtype, DType out) {
      Array in(dtype, contiguous(sizes));
      fill_range(in, 6, product ? 0.9 : 0, product ? 1.1 : 3);
      if (dtype == f32) in.set(65000, INFINITY);
      (void)run_everywhere(
          {Array(out, contiguous(sizes)), in},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::scan(target, product ? ScanOp::product : ScanOp::sum, t[0], t[1], 0);
          },
          "columns");
    };
    scan(f32, f32);
    if (length > 200) continue;
    scan(bf16, bf16);
    scan(f64, f64);
    scan(DType::i8, i64);
  }
}

// More tiles of 4096 elements than a group of groups has: i8 keeps the memory small.
TEST(ScanKernelTest, ScansThroughEveryLevelOfTiles) {
  const std::int64_t length = 4096 * 16 * 16 + 4096 * 17 + 5;
  Array in(DType::i8, contiguous({length}));
  fill_range(in, 1, -3, 3);
  const std::vector<Array> arrays = run_everywhere(
      {Array(i64, contiguous({length})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, ScanOp::sum, t[0], t[1], 0);
      },
      "i8");
  std::int64_t running = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    running += in.get<std::int8_t>(i);
    ASSERT_EQ(arrays[0].get<std::int64_t>(i), running) << i;
  }
}

// More tiles than a GPU scans at a time: each block has several. All sums are exact.
TEST(ScanKernelTest, ScansMoreTilesThanThereAreBlocks) {
  const std::int64_t length = 4096 * 2300 + 5;
  Array in(f32, contiguous({length}));
  for (std::int64_t i = 0; i < length; ++i)
    in.set(i, static_cast<float>(i % 7 - 3 + i % 4096 / 4095));
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({length})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, ScanOp::sum, t[0], t[1], 0);
      },
      "f32");
  float running = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    running += in.get<float>(i);
    ASSERT_EQ(arrays[0].get<float>(i), running) << i;
  }
}

// Rows for the kernel of long rows, which a GPU uses for more tiles than it has blocks: a tile more
// than the blocks of 132 multiprocessors, ends within a tile and within 16 bytes, several fibres,
// and memory between them.
TEST(ScanKernelTest, ScansLongRowsOfEveryLength) {
  const auto scan = [](DType dtype, ScanOp op, const Layout& layout) {
    Array in(dtype, layout);
    const bool product = op == ScanOp::product;
    fill_range(in, 7, product ? 0.998 : -1.5, product ? 1.002 : 1.5);
    (void)run_everywhere(
        {Array(dtype, layout), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, op, t[0], t[1], layout.sizes.size() - 1);
        },
        "long rows");
  };
  for (const std::int64_t length : {4096 * 529, 4096 * 799 + 5, 4096 * 800 - 4}) {
    scan(f32, ScanOp::sum, contiguous({length}));
  }
  scan(f32, ScanOp::product, contiguous({4096 * 793 + 1}));
  scan(DType::f16, ScanOp::sum, contiguous({4096 * 925}));
  scan(DType::bf16, ScanOp::sum, contiguous({4096 * 1059 + 13}));
  scan(DType::bf16, ScanOp::product, contiguous({3, 4096 * 400 + 8}));
  scan(f32, ScanOp::sum, contiguous({3, 4096 * 300 - 8}));
  scan(f32, ScanOp::product, contiguous({60, 4096 * 17 - 4092}));
  scan(f32, ScanOp::sum, contiguous({3, 4096 * 300 - 1}));
  scan(f32, ScanOp::sum, testing::shifted({3, 4096 * 300}));
  scan(f32, ScanOp::log_sum_exp, contiguous({4096 * 40}));
  // Wide elements: more tiles than two blocks of each multiprocessor hold.
  scan(f64, ScanOp::sum, contiguous({4096 * 265}));
  scan(f64, ScanOp::product, contiguous({3, 4096 * 150 - 2}));
  scan(f32, ScanOp::sum, contiguous({4096 * 4097 + 3}));
}

// What follows a NaN is the canonical NaN, and infinities keep their sign.
TEST(ScanKernelTest, ScansLongRowsOfAnyValues) {
  const std::int64_t length = 4096 * 1000;
  const auto scan = []<class T>(TypeTag<T>, ScanOp op, std::int64_t at, float value) {
    Array in(dtype_of<T>, contiguous({length}));
    fill_range(in, 3, -1, 1);
    in.set<T>(at, T(value));
    in.set<T>(at + 4096 * 100, T(-value));
    in.set<T>(at + 4096 * 200 + 3, T(0.0F));
    (void)run_everywhere(
        {Array(dtype_of<T>, contiguous({length})), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, op, t[0], t[1], 0);
        },
        "any values");
  };
  for (const std::int64_t at : {1, 4096 * 500 + 7}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                              -std::numeric_limits<float>::infinity(), 3e38F}) {
      scan(TypeTag<float>{}, ScanOp::sum, at, value);
      scan(TypeTag<bfloat16>{}, ScanOp::sum, at, value);
    }
    scan(TypeTag<float>{}, ScanOp::product, at, std::numeric_limits<float>::infinity());
    scan(TypeTag<float16>{}, ScanOp::product, at, std::numeric_limits<float>::infinity());
  }
}

// Note [Restarted scans] in columns: a total overflows though no running value does.
TEST(ScanKernelTest, ScansColumnsFromTheirFirstElementAgain) {
  for (const std::int64_t columns : {40, 65600}) {
    const auto scan = [&]<class T>(ScanOp op, T first, T large) {
      Array in(dtype_of<T>, contiguous({40, columns}));
      fill_range(in, 3, 0.5, 1);
      for (std::int64_t c = 0; c < columns; c += 7) {
        in.set<T>(c, first);
        in.set<T>(17 * columns + c, large);
        in.set<T>(18 * columns + c, large);
      }
      const std::vector<Array> arrays = run_everywhere(
          {Array(dtype_of<T>, contiguous({40, columns})), in},
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::scan(target, op, t[0], t[1], 0);
          },
          "columns");
      for (std::int64_t c = 0; c < columns; ++c) {
        ASSERT_TRUE(std::isfinite(arrays[0].value(39 * columns + c))) << c;
      }
    };
    scan(ScanOp::sum, bfloat16(-3e38F), bfloat16(3e38F));
    scan(ScanOp::sum, -1.5e308, 1.5e308);
    scan(ScanOp::product, 0.0F, 3e38F);
    scan(ScanOp::product, 0.0, 1.5e308);
  }
}

// A result may take the place of its elements.
TEST(ScanKernelTest, ScansInPlace) {
  for (const std::int64_t length : {4096 * 40 + 4, 4096 * 500 + 4}) {
    Array in(f32, contiguous({2, length}));
    fill_range(in, 1, -1, 1);
    const std::vector<Array> apart = run_everywhere(
        {Array(f32, contiguous({2, length})), in},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, ScanOp::sum, t[0], t[1], 1);
        },
        "apart");
    const std::vector<Array> in_place = run_everywhere(
        {in},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, ScanOp::sum, t[0], t[0], 1);
        },
        "in place");
    EXPECT_TRUE(apart[0].bytes() == in_place[0].bytes());
  }
}

// Every replay begins with no totals published.
TEST(ScanKernelTest, ReplaysScanWhatIsInMemory) {
  if (device_count() == 0) GTEST_SKIP() << "needs a device";
  const Layout layout = contiguous({4096 * 900 + 1});
  const auto bytes = static_cast<std::size_t>(layout.numel()) * sizeof(float);
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const memory::Buffer in = memory::allocate(stream, bytes);
  const memory::Buffer out = memory::allocate(stream, bytes);
  stream.synchronize();
  Graph graph;
  {
    const GraphCapture capture(graph, {.stream = stream});
    kernels::scan(Target::on(stream), ScanOp::sum, Array(f32, layout).ref(out.data()),
                  Array(f32, layout).ref(in.data()), 0);
  }
  const StreamGuard guard(stream);
  for (std::uint32_t replay = 0; replay < 3; ++replay) {
    std::vector<Array> arrays = {Array(f32, layout), Array(f32, layout)};
    fill_range(arrays[1], replay, -1, 1);
    driver().copy(in.data(), arrays[1].bytes().data(), bytes, stream.native());
    graph.replay();
    Array result(f32, layout);
    driver().copy(result.bytes().data(), out.data(), bytes, stream.native());
    stream.synchronize();
    run_on_cpu(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
      kernels::scan(target, ScanOp::sum, t[0], t[1], 0);
    });
    ASSERT_TRUE(result.bytes() == arrays[0].bytes()) << replay;
  }
}

// Several fibres, each with its own levels.
TEST(ScanKernelTest, ScansSeveralFibresOfManyTiles) {
  expect_running<float>(false, contiguous({2, 4096 * 34 + 9}), 1);
  expect_running<bfloat16>(false, testing::shifted({2, 4096 * 32}), 1);
}

TEST(ScanKernelTest, AMillionFloatsStayWithinAMillionth) {
  const std::int64_t length = 1000000;
  Array in(f32, contiguous({length}));
  fill_range(in, 1, 0, 1);
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({length})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, ScanOp::sum, t[0], t[1], 0);
      },
      "f32");
  long double exact = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    exact += in.get<float>(i);
    ASSERT_NEAR(arrays[0].value(i) / static_cast<double>(exact), 1, 1e-6) << i;
  }
}

TEST(ScanKernelTest, KeepsTheSignOfZero) {
  Array in(f32, contiguous({40}));
  for (std::int64_t i = 0; i < 40; ++i) in.set(i, -0.0f);
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({40})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, ScanOp::sum, t[0], t[1], 0);
      },
      "-0");
  for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(arrays[0].bits(i), 0x80000000u) << i;
}

}  // namespace
}  // namespace gantry::testing
