#include <gantry/tensor/index_plan.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::elements;
using ::testing::ElementsAre;

class IndexPlanTest : public testing::PlacedTest {
 protected:
  // [[0, 1, 2], [3, 4, 5]]
  Tensor matrix() const { return arange(6, options()).view({2, 3}); }
  Tensor positions() const { return on(tensor({1, 0, -1})); }
  Tensor mask() const { return on(tensor({{true, false, true}, {false, false, true}})); }
  std::string place() const { return device_.str(); }

  static std::string_view read_name(const Tensor& t, std::initializer_list<Index> list) {
    return IndexPlan::for_read(t, std::span(list.begin(), list.size())).name();
  }
  static std::string_view write_name(const Tensor& t, std::initializer_list<Index> list,
                                     const Operand& value, bool accumulate = false) {
    return IndexPlan::for_write(t, std::span(list.begin(), list.size()), value, accumulate).name();
  }
};

GANTRY_TEST_PLACES(IndexPlanTest);

TEST_P(IndexPlanTest, TheListAndTheValueDecideTheKind) {
  const Tensor t = matrix();
  EXPECT_EQ(read_name(t, {0, Slice(), None, true}), "View");
  EXPECT_EQ(read_name(t, {on(tensor(1))}), "View");
  EXPECT_EQ(read_name(t, {positions()}), "Gather");
  EXPECT_EQ(read_name(t, {mask()}), "Gather");
  EXPECT_EQ(write_name(t, {0}, 1), "Fill");
  EXPECT_EQ(write_name(t, {0}, on(tensor(1.0f))), "Fill");
  EXPECT_EQ(write_name(t, {0}, ones({3}, options())), "Copy");
  EXPECT_EQ(write_name(t, {positions()}, 1), "Scatter");
  EXPECT_EQ(write_name(t, {mask()}, 1), "Fill");
  EXPECT_EQ(write_name(t, {mask()}, 1, true), "Scatter");
  EXPECT_EQ(write_name(t, {mask()}, ones({3}, options())), "Scatter");
  EXPECT_EQ(write_name(t, {mask(), None, true}, 1), "Scatter");
}

TEST_P(IndexPlanTest, ExplainSaysWhatIsReadAndMoved) {
  const Tensor t = matrix();
  EXPECT_EQ(explain(t, {1, Slice(1, None)}), "View [2] f32 on " + place() +
                                                 "\n  strides [1], offset 4\n"
                                                 "  moves 0 bytes, temporaries 0 bytes\n");
  // 3 x 3 elements of 4 bytes are read and written, 3 indices of 8 bytes read.
  EXPECT_EQ(explain(t, {positions()}), "Gather [3, 3] f32 on " + place() +
                                           "\n  dim 0 by i64 [3]\n"
                                           "  moves 96 bytes, temporaries 0 bytes\n");
  // Offsets of 8 bytes, which are written and read.
  EXPECT_EQ(explain(t, {positions(), positions()}),
            "Gather [3] f32 on " + place() +
                "\n  dim 0 by i64 [3]\n"
                "  dim 1 by i64 [3]\n"
                "  moves 120 bytes, temporaries 24 bytes\n");
  // The mask is read once. Its bits and a sum, of 8 bytes each, are written and read.
  EXPECT_EQ(explain(t, {mask()}), "Gather [3] f32 on " + place() +
                                      "\n  dims 0 to 1 by a mask of 6, 3 selected\n"
                                      "  moves 62 bytes, temporaries 16 bytes\n");
}

TEST_P(IndexPlanTest, ExplainPutWritesNothing) {
  const Tensor t = matrix();
  EXPECT_EQ(explain_put(t, {0}, 5),
            "Fill [3] f32 on " + place() + "\n  moves 12 bytes, temporaries 0 bytes\n");
  EXPECT_EQ(
      explain_put(t, {0}, ones({3}, options()), true),
      "Copy [3] f32 on " + place() + "\n  accumulates\n  moves 36 bytes, temporaries 0 bytes\n");
  EXPECT_EQ(explain_put(t, {mask()}, 5), "Fill [2, 3] f32 on " + place() +
                                             "\n  where a mask of 6 is set\n"
                                             "  moves 54 bytes, temporaries 0 bytes\n");
  EXPECT_EQ(explain_put(t, {Slice(), on(tensor({0, 0}))}, ones({2}, options()), true),
            "Scatter [2, 2] f32 on " + place() +
                "\n  dim 1 by i64 [2]\n  accumulates\n"
                "  moves 56 bytes, temporaries 0 bytes\n");
  EXPECT_THAT(elements(t), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(IndexPlanTest, APlanRunsAgainWithNewContents) {
  Tensor t = matrix();
  const Tensor index = positions();
  const std::vector<Index> list = {Slice(), index};
  const IndexPlan read = IndexPlan::for_read(t, list);
  EXPECT_THAT(elements(read.read()), ElementsAre(1, 0, 2, 4, 3, 5));
  t.mul_(2);
  index.copy_(on(tensor({2, 2, 0})));
  EXPECT_THAT(elements(read.read()), ElementsAre(4, 4, 0, 10, 10, 6));
  const IndexPlan write = IndexPlan::for_write(t, list, 1, true);
  write.write(1);
  write.write(on(tensor({1.0f, 2.0f, 4.0f})));
  EXPECT_THAT(elements(t), ElementsAre(5, 2, 9, 11, 8, 15));
  EXPECT_ERROR(read.write(1), InvalidArgument,
               "IndexPlan::write: expected the plan of a write, but got that of a read, Gather");
  EXPECT_ERROR(write.read(), InvalidArgument,
               "IndexPlan::read: expected the plan of a read, but got that of a write, Scatter");
  EXPECT_ERROR(write.write(ones({2}, options())), ShapeError,
               "value tensor of shape [2] cannot be broadcast to indexing result of shape [2, 3]");
}

// A mask that selects more than its plan has counted writes nothing beyond.
TEST_P(IndexPlanTest, AMaskThatHasChangedStaysInsideItsOutput) {
  const Tensor t = matrix();
  const Tensor changing = mask();
  const std::vector<Index> list = {changing};
  const IndexPlan read = IndexPlan::for_read(t, list);
  const IndexPlan write = IndexPlan::for_write(t, list, ones({3}, options()));
  changing.fill_(true);
  EXPECT_EQ(read.read().sizes(), Shape{3});
  write.write(ones({3}, options()));
  EXPECT_LE(elements(t)[5], 5);
}

TEST_P(IndexPlanTest, ReadsOfTensorsAreCopiesAndOthersAreViews) {
  Tensor t = matrix();
  EXPECT_FALSE(t.index({positions()}).is_view_of(t));
  EXPECT_TRUE(t.index({on(tensor(1))}).is_view_of(t));
  t.index({on(tensor(1)), 0}) = 7.0;
  EXPECT_THAT(elements(t), ElementsAre(0, 1, 2, 7, 4, 5));
}

TEST_P(IndexPlanTest, AnAssignmentToACopyIsRefusedUnlessAHandleSeesIt) {
  Tensor t = matrix();
  EXPECT_ERROR((t.index({positions()}) = 1.0), InvalidArgument,
               "operator=: expected a view, but got a copy, because an index is a tensor; write "
               "with index_put_");
  EXPECT_ERROR((t.index({mask()}) = ones({3}, options())), InvalidArgument, "expected a view");
  EXPECT_THAT(elements(t), ElementsAre(0, 1, 2, 3, 4, 5));
  const Tensor copy = t.index({positions(), 0});
  EXPECT_THAT(elements(copy), ElementsAre(3, 0, 3));
  const auto handle = [&] { return copy; };
  handle() = 4.0;
  EXPECT_THAT(elements(copy), ElementsAre(4, 4, 4));
  copy[0] = 5.0;
  EXPECT_THAT(elements(copy), ElementsAre(5, 4, 4));
}

TEST_P(IndexPlanTest, DuplicatesAreWrittenInOrder) {
  const Tensor index = on(tensor({0, 1, 0, 1, 0}));
  const Tensor values = on(tensor({1e8f, 1.0f, 1.0f, 2.0f, -1e8f}));
  Tensor last = zeros({2}, options());
  last.index_put_({index}, values);
  EXPECT_THAT(elements(last), ElementsAre(-1e8, 2));
  Tensor sums = zeros({2}, options());
  sums.index_put_({index}, values, true);
  EXPECT_THAT(elements(sums), ElementsAre(0, 3));  // (1e8 + 1) - 1e8 in f32
  // Few elements and many indices take the sorted kernel on a GPU.
  const Tensor many = on(arange(10'000)).remainder(3);
  Tensor counted = zeros({3, 2}, options());
  counted.index_put_({many}, on(arange(10'000)).to(f32).unsqueeze(1).expand({10'000, 2}));
  EXPECT_THAT(elements(counted), ElementsAre(9999, 9999, 9997, 9997, 9998, 9998));
  Tensor ones_counted = zeros({3}, options(i32));
  ones_counted.index_put_({many}, 1, true);
  EXPECT_THAT(elements(ones_counted), ElementsAre(3334, 3333, 3333));
}

TEST_P(IndexPlanTest, IndicesOutOfRangeAreErrorsOfTheNextSynchronization) {
  Tensor t = matrix();
  const std::string where = device_.is_cpu() ? "" : " on " + place();
  const Tensor bad = on(tensor({1, 3}));
  EXPECT_ERROR(elements(t.index({Slice(), bad})), IndexError,
               "index" + where + ": index 3 is out of bounds for dimension 1 with size 3");
  EXPECT_ERROR(elements(t.index({on(tensor({0, -3})), bad})), IndexError,
               "index" + where + ": index -3 is out of bounds for dimension 0 with size 2");
  EXPECT_ERROR(elements(t.index_put_({0, on(tensor({0, -4}))}, 9)), IndexError,
               "index_put_" + where + ": index -4 is out of bounds for dimension 1 with size 3");
  // On the CPU nothing is written. A device has written the elements that exist.
  EXPECT_EQ(elements(t)[0], device_.is_cpu() ? 0 : 9);
}

TEST_P(IndexPlanTest, CpuIndicesServeDeviceTensors) {
  Tensor t = matrix();
  EXPECT_THAT(elements(t.index({Slice(), tensor({2, -3})})), ElementsAre(2, 0, 5, 3));
  EXPECT_THAT(elements(t.index({mask().cpu()})), ElementsAre(0, 2, 5));
  t.index_put_({mask().cpu()}, 9);
  t.index_put_({tensor({1}), tensor({0})}, tensor(8.0f));
  EXPECT_THAT(elements(t), ElementsAre(9, 1, 9, 8, 4, 9));
}

class IndexCaptureTest : public testing::DeviceTest {};

// Positions need no host, so a graph may gather and scatter; a mask stops it.
TEST_F(IndexCaptureTest, PositionsAreCapturedAndMasksAreNot) {
  const TensorOptions options{.dtype = f32, .device = Device::cuda(0)};
  const Tensor t = arange(6, options).view({2, 3});
  const Tensor index = tensor({2, 0}, {.device = Device::cuda(0)});
  const Tensor target = zeros({3}, options);
  Tensor result;
  Graph graph;
  {
    const GraphCapture capture(graph);
    result = t.index({Slice(), index});
    target.index_put_({index}, 1, true);
  }
  index.copy_(tensor({1, 1}));
  graph.replay();
  graph.replay();
  EXPECT_THAT(elements(result), ElementsAre(1, 1, 4, 4));
  EXPECT_THAT(elements(target), ElementsAre(0, 4, 0));
}

TEST(IndexGpuTest, MasksOfMoreThanTwoToThe31Elements) {
  GANTRY_REQUIRE_CUDA();
  const std::int64_t n = (std::int64_t{1} << 31) + 3 * 4096 + 5;
  const Tensor bytes = zeros({n}, {.dtype = u8, .device = Device::cuda(0)});
  const Tensor places = tensor({std::int64_t{7}, n - 4097, n - 1}, {.device = Device::cuda(0)});
  bytes.index_put_({places}, 3);
  EXPECT_THAT(nonzero(bytes).view({-1}).to_vector<std::int64_t>(), ElementsAre(7, n - 4097, n - 1));
  EXPECT_THAT(bytes.index({places}).to_vector<int>(), ElementsAre(3, 3, 3));
  EXPECT_THAT(masked_select(bytes, ne(bytes, 0)).to_vector<int>(), ElementsAre(3, 3, 3));
}

TEST(IndexLargeTest, PositionsBeyondTwoToThe32) {
  const std::int64_t n = (std::int64_t{1} << 32) + 10;
  for (const Device place : testing::all_places()) {
    const Tensor wide = ones({1}, {.dtype = u8, .device = place}).expand({n});
    EXPECT_THAT(wide.index({tensor({n - 1, -n}, {.device = place})}).to_vector<int>(),
                ElementsAre(1, 1));
    EXPECT_ERROR(wide.index({tensor({n}, {.device = place})}).to_vector<int>(), IndexError,
                 "index 4294967306 is out of bounds for dimension 0 with size 4294967306");
  }
}

}  // namespace
}  // namespace gantry
