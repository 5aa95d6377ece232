#include <gantry/tensor/outputs.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// One operation on the square matrix `m`, with and without an output.
struct Row {
  std::string name;
  std::function<Tensor(const Tensor&)> result;
  std::function<Tensor&(Tensor&, const Tensor&)> into;
  bool may_overlap = true;
};

#define GANTRY_ROW(name, ...)                                          \
  Row {                                                                \
#name, [](const Tensor& m) { return name(__VA_ARGS__); },            \
        [](Tensor& out, const Tensor& m) -> Tensor& {                    \
          return name##_out(out, __VA_ARGS__);                           \
        } \
  }

std::vector<Tensor> twice(const Tensor& m) { return {m, m * 2}; }

std::vector<Row> rows() {
  std::vector<Row> list{GANTRY_ROW(sum, m, 1),
                        GANTRY_ROW(sum, m, 0, true),
                        GANTRY_ROW(prod, m, {}, true),
                        GANTRY_ROW(mean, m, -1),
                        GANTRY_ROW(amax, m, 0),
                        GANTRY_ROW(amin, m, 1, true),
                        GANTRY_ROW(any, m, 0),
                        GANTRY_ROW(all, m, 1),
                        GANTRY_ROW(argmax, m, 1),
                        GANTRY_ROW(argmin, m, 0, true),
                        GANTRY_ROW(count_nonzero, m, 1),
                        GANTRY_ROW(count_nonzero, m),
                        GANTRY_ROW(max, m),
                        GANTRY_ROW(min, m),
                        GANTRY_ROW(norm, m, 3, 0),
                        GANTRY_ROW(var, m, {.dims = 1, .correction = 0}),
                        GANTRY_ROW(logsumexp, m, 1),
                        GANTRY_ROW(cumsum, m, 1),
                        GANTRY_ROW(cumprod, m, 0),
                        GANTRY_ROW(softmax, m, 1),
                        GANTRY_ROW(log_softmax, m, 0),
                        GANTRY_ROW(matmul, m, m),
                        GANTRY_ROW(matmul, m.unsqueeze(0), m[0]),
                        GANTRY_ROW(mm, m, m.t()),
                        GANTRY_ROW(bmm, m.unsqueeze(0), m.unsqueeze(0)),
                        GANTRY_ROW(mv, m, m[0]),
                        GANTRY_ROW(dot, m[0], m[1]),
                        GANTRY_ROW(outer, m[0], m[1]),
                        GANTRY_ROW(addmm, m, m, m, 2, 0.5),
                        GANTRY_ROW(addmm, m[0], m, m, 0, 0.5),
                        GANTRY_ROW(baddbmm, m, m.unsqueeze(0), m.unsqueeze(0), 2, 3),
                        GANTRY_ROW(addmv, m[0], m, m[1], 2, 3)};
  list.push_back(
      {"std", [](const Tensor& m) { return gantry::std(m, {.dims = 0}); },
       [](Tensor& out, const Tensor& m) -> Tensor& { return std_out(out, m, {.dims = 0}); }});
  for (Row join : {GANTRY_ROW(cat, twice(m), 1), GANTRY_ROW(stack, twice(m), 2),
                   GANTRY_ROW(hstack, twice(m)), GANTRY_ROW(vstack, twice(m)),
                   GANTRY_ROW(dstack, twice(m)), GANTRY_ROW(column_stack, twice(m))}) {
    join.may_overlap = false;
    list.push_back(join);
  }
  return list;
}
#undef GANTRY_ROW

class OutputsTest : public testing::PlacedTest {
 protected:
  void SetUp() override {
    PlacedTest::SetUp();
    if (IsSkipped()) return;
    manual_seed_all(11);
    matrix_ = on(rand({6, 6}) + 0.5);
  }
  // A tensor of the result's form with other contents.
  Tensor output_for(const Tensor& result, DType dtype) const {
    return on(full(result.sizes(), 1, dtype));
  }
  // Transposed memory.
  Tensor strided_for(const Tensor& result) const {
    Shape reversed;
    for (int d = result.dim() - 1; d >= 0; --d) reversed.push_back(result.size(d));
    Dims dims;
    for (int d = result.dim() - 1; d >= 0; --d) dims.push_back(d);
    return on(full(reversed, 1, result.dtype())).permute(dims);
  }

  Tensor matrix_;
};

GANTRY_TEST_PLACES(OutputsTest);

TEST_P(OutputsTest, HoldTheResult) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const Tensor expected = row.result(matrix_);
    Tensor dense = output_for(expected, expected.dtype());
    const void* const memory = dense.data();
    EXPECT_EQ(&row.into(dense, matrix_), &dense);
    EXPECT_EQ(dense.data(), memory);
    EXPECT_TRUE(dense.equal(expected));
    Tensor strided = strided_for(expected);
    row.into(strided, matrix_);
    EXPECT_TRUE(strided.equal(expected));
    // Every second element of a larger tensor, whose other elements stay.
    const Tensor wide = on(full({expected.numel(), 2}, 1, expected.dtype()));
    if (expected.numel() > 0) {
      Tensor column = wide.select(1, 1).view(expected.sizes());
      row.into(column, matrix_);
      EXPECT_TRUE(column.equal(expected));
      EXPECT_TRUE(wide.select(1, 0).eq(1).all().item<bool>());
    }
  }
}

TEST_P(OutputsTest, ConvertTheResult) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const Tensor expected = row.result(matrix_);
    Tensor wider = output_for(expected, f64);
    row.into(wider, matrix_);
    EXPECT_TRUE(wider.allclose(expected.to(f64), 1e-4, 1e-6));
  }
  // Sums are computed in the output's dtype.
  const Tensor half = on(full({5000}, 1, f16));
  Tensor total = on(zeros({}, f32));
  EXPECT_EQ(sum_out(total, half).item<float>(), 5000);
  Tensor bytes = on(zeros({}, u8));
  EXPECT_EQ(sum_out(bytes, on(full({300}, 1, i64))).item<int>(), 300 - 256);
  Tensor running = on(zeros({300}, i16));
  EXPECT_EQ(cumsum_out(running, on(full({300}, 200, u8)), 0)[299].item<int>(),
            static_cast<std::int16_t>(60000));
  Tensor average = on(zeros({}, f64));
  EXPECT_EQ(mean_out(average, on(tensor({1, 2}))).item<double>(), 1.5);
}

TEST_P(OutputsTest, MayOverlapOperands) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const Tensor expected = row.result(matrix_);
    if (expected.numel() > matrix_.numel() || expected.dtype() != f32) continue;
    const Tensor own = matrix_.clone();
    Tensor front = own.view({36}).slice(0, 0, expected.numel()).view(expected.sizes());
    if (row.may_overlap) {
      row.into(front, own);
      EXPECT_TRUE(front.equal(expected));
    } else {
      EXPECT_ERROR(row.into(front, own), InvalidArgument, "refer to a single memory location");
      EXPECT_TRUE(own.equal(matrix_));
    }
  }
  Tensor own = matrix_.clone();
  EXPECT_ERROR(stack_out(own, {own.narrow(0, 0, 6).view({36}).narrow(0, 0, 6), own[1], own[2],
                               own[3], own[4], own[5]}),
               InvalidArgument, "stack: unsupported operation: some elements");
  // The addend in the output's memory.
  const Tensor other = on(rand({6, 6}));
  const Tensor expected = addmm(own, other, other, 0.5, 2);
  addmm_out(own, own, other, other, 0.5, 2);
  EXPECT_TRUE(own.equal(expected));
  Tensor batches = own.clone().unsqueeze(0);
  const Tensor expected_batches = baddbmm(batches, batches, batches);
  baddbmm_out(batches, batches, batches, batches);
  EXPECT_TRUE(batches.equal(expected_batches));
}

TEST_P(OutputsTest, BadOutputsChangeNothing) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const Tensor result = row.result(matrix_);
    Shape larger = result.sizes();
    larger.push_back(2);
    Tensor misshapen = on(zeros(larger, result.dtype()));
    EXPECT_ERROR(row.into(misshapen, matrix_), ShapeError, row.name + ": expected an output");
    EXPECT_EQ(misshapen.count_nonzero().item<int>(), 0);
    if (result.dtype() != bool_) {
      Tensor flags = on(zeros(result.sizes(), bool_));
      EXPECT_ERROR(row.into(flags, matrix_), DTypeError, row.name + ": result type");
      EXPECT_FALSE(flags.any().item<bool>());
    }
    Tensor undefined;
    EXPECT_ERROR(row.into(undefined, matrix_), InvalidArgument, "'out'");
    if (result.numel() > 1) {
      Tensor expanded = on(zeros({}, result.dtype())).expand(result.sizes());
      EXPECT_ERROR(row.into(expanded, matrix_), InvalidArgument,
                   row.name + ": unsupported operation: more than one element");
    }
    if (!device_.is_cpu()) {
      Tensor elsewhere = zeros(result.sizes(), result.dtype());
      EXPECT_ERROR(row.into(elsewhere, matrix_), DeviceMismatchError, "at least two devices");
    }
  }
}

TEST_P(OutputsTest, ExtremaAlongADimWriteValuesAndIndices) {
  const Tensor source = on(tensor({{3, 1, 2}, {1, 5, 5}}));
  for (const DType dtype : {u8, i32, i64, f16, f32}) {
    for (const int dim : {0, 1, -1}) {
      for (const bool keepdim : {false, true}) {
        const Tensor t = source.to(dtype);
        const ValuesAndIndices largest = max(t, dim, keepdim);
        const ValuesAndIndices smallest = min(t, dim, keepdim);
        Tensor values = empty_like(largest.values);
        Tensor indices = empty_like(largest.indices);
        const std::tuple<Tensor&, Tensor&> outputs = max_out(values, indices, t, dim, keepdim);
        EXPECT_EQ(&std::get<0>(outputs), &values);
        EXPECT_EQ(&std::get<1>(outputs), &indices);
        EXPECT_TRUE(values.equal(largest.values));
        EXPECT_TRUE(indices.equal(largest.indices));
        min_out(values, indices, t, dim, keepdim);
        EXPECT_TRUE(values.equal(smallest.values));
        EXPECT_TRUE(indices.equal(smallest.indices));
      }
    }
  }
  // Strided outputs, and a 0-dim tensor.
  Tensor values = on(zeros({2, 2}, i64)).select(1, 0);
  Tensor indices = on(zeros({2, 2}, i64)).select(1, 1);
  max_out(values, indices, source, 1);
  EXPECT_THAT(values.to_vector<int>(), ElementsAre(3, 5));
  EXPECT_THAT(indices.to_vector<int>(), ElementsAre(0, 1));
  Tensor value = on(zeros({}, i64));
  Tensor index = on(zeros({}, i64));
  min_out(value, index, on(tensor(7)), 0);
  EXPECT_EQ(value.item<int>(), 7);
  Tensor both = on(zeros({2, 3}, i64));
  max_out(both, source, on(tensor(2)));
  EXPECT_THAT(both.to_vector<int>(), ElementsAre(3, 2, 2, 2, 5, 5));
  min_out(both, source, on(tensor(2)));
  EXPECT_THAT(both.to_vector<int>(), ElementsAre(2, 1, 2, 1, 2, 2));
}

TEST_P(OutputsTest, BadOutputsOfExtremaAreRefused) {
  const Tensor t = on(tensor({{3, 1, 2}, {1, 5, 5}}));
  Tensor values = on(full({2}, 9, i64));
  Tensor indices = on(full({2}, 9, i64));
  Tensor shorts = on(zeros({2}, i32));
  Tensor longer = on(zeros({3}, i64));
  Tensor undefined;
  EXPECT_ERROR(max_out(shorts, indices, t, 1), DTypeError,
               "max: expected argument 'values' of dtype Long, but got Int");
  EXPECT_ERROR(max_out(values, shorts, t, 1), DTypeError,
               "max: expected argument 'indices' of dtype Long, but got Int");
  EXPECT_ERROR(min_out(values, longer, t, 1), ShapeError,
               "min: expected argument 'indices' of shape [2], but got [3]");
  EXPECT_ERROR(min_out(values, indices, t, 2), IndexError, "Dimension out of range");
  EXPECT_ERROR(min_out(values, undefined, t, 1), InvalidArgument, "'indices'");
  EXPECT_ERROR(max_out(values, values, t, 1), InvalidArgument, "max");
  Tensor first = t[0];
  EXPECT_ERROR(max_out(first, longer, t, 0), InvalidArgument, "max");
  EXPECT_ERROR(max_out(values, indices, on(zeros({2, 0}, i64)), 1), Error, "max");
  for (const Tensor& kept : {values, indices}) {
    EXPECT_THAT(kept.to_vector<int>(), ElementsAre(9, 9));
  }
  Tensor count = on(zeros({}, i32));
  EXPECT_EQ(count_nonzero_out(count, t).item<int>(), 6);
  EXPECT_ERROR(count_nonzero_out(values, t), ShapeError, "count_nonzero: expected an output");
}

TEST_P(OutputsTest, NonzeroWritesCoordinates) {
  const Tensor t = on(tensor({{0, 1}, {2, 0}, {0, 3}}));
  for (const bool strided : {false, true}) {
    Tensor out = strided ? on(zeros({2, 3}, i64)).t() : on(zeros({3, 2}, i64));
    EXPECT_EQ(&nonzero_out(out, t), &out);
    EXPECT_TRUE(out.equal(nonzero(t)));
  }
  Tensor none = on(zeros({0, 2}, i64));
  EXPECT_EQ(nonzero_out(none, on(zeros({2, 2}))).numel(), 0);
  Tensor wrong = on(zeros({2, 2}, i64));
  EXPECT_ERROR(nonzero_out(wrong, t), ShapeError, "nonzero: output with shape [2, 2]");
  Tensor shorts = on(zeros({3, 2}, i32));
  EXPECT_ERROR(nonzero_out(shorts, t), DTypeError,
               "nonzero: Expected out tensor to have dtype Long, but got Int instead");
  Tensor undefined;
  EXPECT_ERROR(nonzero_out(undefined, t), InvalidArgument, "'out'");
}

}  // namespace
}  // namespace gantry
