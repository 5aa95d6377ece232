// Index lists with tensors: reads and writes, against an oracle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/sync_debug.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/index_plan.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/indexing/index_oracle.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using testing::elements;
using ::testing::ElementsAre;
using testing::pattern;
using testing::RandomIndexList;
using testing::Selection;

class IndexTensorsTest : public testing::PlacedTest {
 protected:
  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Shape draw_sizes() {
    Shape sizes;
    const int dims = 1 + draw(4);
    for (int d = 0; d < dims; ++d) sizes.push_back(draw(15) == 0 ? 0 : 1 + draw(5));
    return sizes;
  }

  // A tensor of pattern() with a random layout.
  Tensor draw_tensor(const Shape& sizes, DType dtype) {
    std::vector<int> order(static_cast<std::size_t>(sizes.size()));
    for (int d = 0; d < sizes.size(); ++d) order[static_cast<std::size_t>(d)] = d;
    if (draw(2) == 0) std::shuffle(order.begin(), order.end(), random_);
    Shape stored;
    for (const int d : order) stored.push_back(sizes[d]);
    const bool sliced = draw(2) == 0 && !stored.empty();
    if (sliced) stored[stored.size() - 1] = 2 * stored.back() + 1;
    Tensor t = empty(stored, {.dtype = dtype, .device = device_});
    std::vector<std::byte> bytes(t.storage().bytes());
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      testing::encode(bytes.data() + static_cast<std::size_t>(i) * t.element_size(), dtype,
                      pattern(i, dtype));
    }
    testing::set_storage_bytes(t.storage(), bytes);
    if (sliced) t = t.slice(-1, 1, {}, 2);
    Dims back = Dims::filled(sizes.size(), 0);
    for (int d = 0; d < sizes.size(); ++d) back[order[static_cast<std::size_t>(d)]] = d;
    return t.permute(back);
  }

  std::mt19937 random_{7};
};

GANTRY_TEST_PLACES(IndexTensorsTest);

TEST_P(IndexTensorsTest, ReadsWhatTheOracleReads) {
  int used = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape sizes = draw_sizes();
    const DType dtype = testing::computing_dtypes()[static_cast<std::size_t>(draw(10))];
    const Tensor t = draw_tensor(sizes, dtype);
    const RandomIndexList list(random_, sizes, device_);
    if (!list.is_usable()) continue;
    SCOPED_TRACE(sizes.str() + " [" + list.str() + "]");
    const Selection wanted = list.selection();
    const std::vector<double> all = elements(t);
    std::vector<double> values;
    for (const std::int64_t i : wanted.elements) values.push_back(all[static_cast<std::size_t>(i)]);
    const Tensor result = t.index(list.list());
    ASSERT_EQ(result.sizes(), wanted.sizes);
    ASSERT_EQ(elements(result), values);
    ASSERT_EQ(IndexPlan::for_read(t, list.list()).sizes(), wanted.sizes);
    ++used;
  }
  EXPECT_GT(used, 3000);
}

TEST_P(IndexTensorsTest, WritesWhatTheOracleWrites) {
  for (int round = 0; round < 4000; ++round) {
    const Shape sizes = draw_sizes();
    const DType dtype = testing::computing_dtypes()[static_cast<std::size_t>(draw(10))];
    const Tensor t = draw_tensor(sizes, dtype);
    const RandomIndexList list(random_, sizes, device_);
    if (!list.is_usable()) continue;
    const bool accumulate = dtype != bool_ && draw(2) == 0;
    SCOPED_TRACE(sizes.str() + " [" + list.str() + "]" + (accumulate ? " +=" : " ="));
    const Selection places = list.selection();
    // A value that broadcasts: some dims are 1, leading ones are missing or surplus.
    Shape value_sizes = places.sizes;
    while (!value_sizes.empty() && draw(4) == 0) value_sizes.erase(0);
    for (int d = 0; d < value_sizes.size(); ++d) {
      if (draw(4) == 0) value_sizes[d] = 1;
    }
    const Tensor value = draw_tensor(value_sizes, dtype);
    const std::vector<double> source = elements(value);
    std::vector<double> wanted = elements(t);
    for (std::size_t i = 0; i < places.elements.size(); ++i) {
      const Dims at = testing::coordinates(places.sizes, static_cast<std::int64_t>(i));
      const double written =
          source[static_cast<std::size_t>(testing::broadcast_element(value_sizes, at))];
      double& place = wanted[static_cast<std::size_t>(places.elements[i])];
      const double sum = accumulate ? place + written : written;
      place = is_floating_point(dtype) ? testing::converted(sum, f64, dtype)
                                       : testing::converted(sum, i64, dtype);
    }
    t.index_put_(list.list(), value, accumulate);
    ASSERT_EQ(elements(t), wanted);
    t.index_put_(list.list(), 1);
    for (const std::int64_t i : places.elements) wanted[static_cast<std::size_t>(i)] = 1;
    ASSERT_EQ(elements(t), wanted);
  }
}

// As in PyTorch, a 0-dim tensor of any integer type but u8 is a position.
TEST_P(IndexTensorsTest, ZeroDimTensorsOfAllIntegerTypesSelect) {
  const Tensor t = on(arange(6)).view({2, 3});
  for (const DType dtype : {i8, i16, i32, i64}) {
    for (const Tensor& last : {tensor(-1).to(dtype), on(tensor(-1)).to(dtype)}) {
      SCOPED_TRACE(name(dtype));
      const Tensor row = t.index({last});
      EXPECT_TRUE(row.is_view_of(t));
      EXPECT_THAT(row.to_vector<int>(), ElementsAre(3, 4, 5));
      EXPECT_EQ(t.index({0, last}).item<int>(), 2);
      EXPECT_THAT(t.index({on(tensor({1, 0})), last}).to_vector<int>(), ElementsAre(5, 2));
      EXPECT_THAT(index_put(t, {last, Slice(0, 2)}, 9).to_vector<int>(),
                  ElementsAre(0, 1, 2, 9, 9, 5));
    }
    EXPECT_ERROR(t.index({on(tensor(2)).to(dtype)}), IndexError, "index 2 is out of bounds");
  }
  const Tensor byte = on(tensor(1).to(u8));
  EXPECT_EQ(t.index({byte}).sizes(), (Shape{1, 2, 3})) << "a byte is a mask";
  for (const DType dtype : {i8, i16}) {
    EXPECT_ERROR(t.index({on(tensor({1, 0})).to(dtype)}), IndexError,
                 "tensors used as indices must be long, int, byte or bool tensors, but got");
    EXPECT_ERROR(t.index({on(tensor({1})).to(dtype)}), IndexError, "tensors used as indices");
  }
  EXPECT_ERROR(t.index({on(tensor(1.0))}), IndexError, "but got Float");
}

// A CPU tensor of positions does not make the host wait, and may be written right after the call.
TEST_P(IndexTensorsTest, PositionsOnTheCpuAreCopiedWithoutAWait) {
  const Tensor t = on(arange(6)).view({3, 2});
  const Tensor rows = tensor({2, 0});
  const Tensor pinned = tensor({1}).pin_memory();
  const Tensor written = t.clone();
  Tensor picked, few;
  {
    const SyncDebugGuard guard(SyncDebug::error);
    picked = t.index({rows});
    few = t.index({pinned});
    written.index_put_({rows}, -1);
    rows.fill_(1);
    pinned.fill_(0);
  }
  EXPECT_THAT(picked.to_vector<int>(), ElementsAre(4, 5, 0, 1));
  EXPECT_THAT(few.to_vector<int>(), ElementsAre(2, 3));
  EXPECT_THAT(written.to_vector<int>(), ElementsAre(-1, -1, 2, 3, -1, -1));
}

TEST_P(IndexTensorsTest, PositionsOnTheCpuAreCaptured) {
  if (device_.is_cpu()) GTEST_SKIP() << "only streams are captured";
  const Tensor t = on(arange(6)).view({3, 2});
  Tensor picked;
  Graph graph;
  {
    const DeviceGuard guard(device_);
    const GraphCapture capture(graph);
    picked = t.index({tensor({2, 0})});
  }
  t.add_(10);
  graph.replay();
  EXPECT_THAT(picked.to_vector<int>(), ElementsAre(14, 15, 10, 11));
}

}  // namespace
}  // namespace gantry
