// The functions of indexing.hpp beside gather and scatter, against loops over all elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/indexing/index_oracle.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using testing::coordinates;
using testing::elements;
using ::testing::ElementsAre;

std::int64_t row_major(const Shape& sizes, const Dims& at) {
  std::int64_t result = 0;
  for (int d = 0; d < sizes.size(); ++d) result = result * sizes[d] + at[d];
  return result;
}

double& at(std::vector<double>& all, std::int64_t i) { return all[static_cast<std::size_t>(i)]; }

// The elements of self after the writes of source[i] to places[i]: what a reduction makes of them.
std::vector<double> reduced(const std::vector<double>& self,
                            const std::vector<std::int64_t>& places,
                            const std::vector<double>& source, const std::string& reduce,
                            bool include_self, DType dtype) {
  std::vector<double> result = self;
  for (std::size_t i = 0; i < self.size(); ++i) {
    std::vector<double> all;
    for (std::size_t k = 0; k < places.size(); ++k) {
      if (places[k] == static_cast<std::int64_t>(i)) all.push_back(source[k]);
    }
    if (all.empty()) continue;
    if (include_self) all.insert(all.begin(), self[i]);
    double value = all[0];
    for (std::size_t k = 1; k < all.size(); ++k) {
      if (reduce == "sum" || reduce == "mean") value += all[k];
      if (reduce == "prod") value *= all[k];
      if (reduce == "amax") value = std::max(value, all[k]);
      if (reduce == "amin") value = std::min(value, all[k]);
    }
    if (reduce == "mean") {
      value /= static_cast<double>(all.size());
      if (!is_floating_point(dtype)) value = std::floor(value);
      if (is_floating_point(dtype)) value = testing::converted(value, f64, dtype);
    }
    result[i] = value;
  }
  return result;
}

class IndexingFunctionsTest : public testing::PlacedTest {
 protected:
  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // Small integers in a random layout.
  Tensor draw_tensor(const Shape& sizes, DType dtype, int low, int high) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < sizes.product(); ++i) values.push_back(low + draw(high - low));
    Tensor t = tensor(values, {.dtype = dtype}).view(sizes).to(device_);
    if (draw(2) == 0 && sizes.size() > 1) t = t.transpose(0, -1).contiguous().transpose(0, -1);
    if (draw(3) == 0) t = t.unsqueeze(-1).repeat_interleave(2, -1).select(-1, 0);
    return t;
  }
  Shape draw_sizes() {
    Shape sizes;
    const int dims = 1 + draw(3);
    for (int d = 0; d < dims; ++d) sizes.push_back(1 + draw(5));
    return sizes;
  }
  DType draw_index_dtype() { return draw(2) == 0 ? i64 : i32; }

  std::mt19937 random_{3};
};

GANTRY_TEST_PLACES(IndexingFunctionsTest);

const std::vector<DType>& number_dtypes() {
  static const std::vector<DType> kTypes = {u8, i8, i16, i32, i64, f16, bf16, f32, f64};
  return kTypes;
}

TEST_P(IndexingFunctionsTest, ScatterReduceCombinesAsALoopDoes) {
  for (int round = 0; round < 400; ++round) {
    const DType dtype = number_dtypes()[static_cast<std::size_t>(draw(9))];
    const Shape sizes = draw_sizes();
    const int dim = draw(sizes.size());
    Shape index_sizes = sizes;
    index_sizes[dim] = 1 + draw(6);
    const Tensor self = draw_tensor(sizes, dtype, 1, 3);
    const Tensor source = draw_tensor(index_sizes, dtype, 1, 3);
    const Tensor index =
        draw_tensor(index_sizes, draw_index_dtype(), 0, static_cast<int>(sizes[dim]));
    const std::vector<double> positions = elements(index);
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < index.numel(); ++i) {
      Dims to = coordinates(index_sizes, i);
      to[dim] = static_cast<std::int64_t>(positions[static_cast<std::size_t>(i)]);
      places.push_back(row_major(sizes, to));
    }
    for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
      for (const bool include_self : {true, false}) {
        SCOPED_TRACE(::testing::Message() << reduce << " " << dtype << " " << include_self);
        ASSERT_EQ(elements(scatter_reduce(self, dim, index, source, reduce, include_self)),
                  reduced(elements(self), places, elements(source), reduce, include_self, dtype));
      }
    }
    ASSERT_EQ(elements(scatter_add(self, dim, index, source)),
              elements(scatter_reduce(self, dim, index, source, "sum")));
    ASSERT_EQ(elements(scatter(self, dim, index, source, "multiply")),
              elements(scatter_reduce(self, dim, index, source, "prod")));
    ASSERT_EQ(elements(scatter(self, dim, index, source, "add")),
              elements(scatter_reduce(self, dim, index, source, "sum")));
  }
}

TEST_P(IndexingFunctionsTest, SliceWritesGoToTheIndexedSlices) {
  for (int round = 0; round < 400; ++round) {
    const DType dtype = number_dtypes()[static_cast<std::size_t>(draw(9))];
    const Shape sizes = draw_sizes();
    const int dim = draw(sizes.size());
    // More than 32 indices take another kernel on a GPU.
    const std::int64_t count = draw(10) == 0 ? 40 : draw(6);
    Shape source_sizes = sizes;
    source_sizes[dim] = count;
    const Tensor self = draw_tensor(sizes, dtype, 1, 3);
    const Tensor source = draw_tensor(source_sizes, dtype, 1, 2);
    const Tensor index = draw_tensor({count}, draw_index_dtype(), 0, static_cast<int>(sizes[dim]));
    const std::vector<double> positions = elements(index);
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < source_sizes.product(); ++i) {
      Dims to = coordinates(source_sizes, i);
      to[dim] = static_cast<std::int64_t>(positions[static_cast<std::size_t>(to[dim])]);
      places.push_back(row_major(sizes, to));
    }
    const std::vector<double> before = elements(self);
    const std::vector<double> from = elements(source);
    ASSERT_EQ(elements(index_add(self, dim, index, source)),
              reduced(before, places, from, "sum", true, dtype));
    ASSERT_EQ(elements(index_add(self, dim, index, source, 2)),
              reduced(before, places, elements(mul(source, 2)), "sum", true, dtype));
    std::vector<double> copied = before;
    std::vector<double> filled = before;
    for (std::size_t i = 0; i < places.size(); ++i) {
      at(copied, places[i]) = from[i];
      at(filled, places[i]) = 9;
    }
    ASSERT_EQ(elements(index_copy(self, dim, index, source)), copied);
    ASSERT_EQ(elements(index_fill(self, dim, index, 9)), filled);
    ASSERT_EQ(elements(index_fill(self, dim, sub(index, sizes[dim]), 9)), filled);
    for (const char* reduce : {"prod", "mean", "amax", "amin"}) {
      if (count == 40 && std::string(reduce) == "prod") continue;
      for (const bool include_self : {true, false}) {
        ASSERT_EQ(elements(index_reduce(self, dim, index, source, reduce, include_self)),
                  reduced(before, places, from, reduce, include_self, dtype));
      }
    }
    ASSERT_EQ(elements(self), before);
  }
}

TEST_P(IndexingFunctionsTest, FlatReadsAndWrites) {
  for (int round = 0; round < 300; ++round) {
    const DType dtype = testing::computing_dtypes()[static_cast<std::size_t>(draw(10))];
    const Shape sizes = draw_sizes();
    const auto numel = static_cast<int>(sizes.product());
    const Tensor self = draw_tensor(sizes, dtype, 0, 2);
    const Shape index_sizes = draw_sizes();
    const Tensor index = draw_tensor(index_sizes, draw_index_dtype(), -numel, numel);
    const Tensor source = draw_tensor(index_sizes, dtype, 0, 2);
    const std::vector<double> before = elements(self);
    std::vector<double> taken;
    std::vector<double> written = before;
    std::vector<double> added = before;
    const std::vector<double> positions = elements(index);
    const std::vector<double> from = elements(source);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      auto p = static_cast<std::int64_t>(positions[i]);
      if (p < 0) p += numel;
      taken.push_back(before[static_cast<std::size_t>(p)]);
      at(written, p) = from[i];
      at(added, p) = dtype == bool_ ? std::max(at(added, p), from[i]) : at(added, p) + from[i];
    }
    ASSERT_EQ(elements(take(self, index)), taken);
    ASSERT_EQ(take(self, index).sizes(), index_sizes);
    ASSERT_EQ(elements(put(self, index, source)), written);
    ASSERT_EQ(elements(put(self, index, source, true)), added);
    Tensor out = draw_tensor(index_sizes, dtype, 0, 2);
    take_out(out, self, index);
    ASSERT_EQ(elements(out), taken);
  }
}

TEST_P(IndexingFunctionsTest, NonzeroFindsCoordinatesInRowMajorOrder) {
  for (int round = 0; round < 300; ++round) {
    const DType dtype = testing::computing_dtypes()[static_cast<std::size_t>(draw(10))];
    const Shape sizes = draw_sizes();
    const Tensor self = draw_tensor(sizes, dtype, 0, 2);
    const Tensor other = draw_tensor(sizes, f32, 0, 100);
    const std::vector<double> flags = elements(self);
    std::vector<double> coords;
    std::vector<double> selected;
    std::vector<double> scattered = elements(other);
    std::int64_t rank = 0;
    for (std::int64_t i = 0; i < self.numel(); ++i) {
      if (flags[static_cast<std::size_t>(i)] == 0) continue;
      for (const std::int64_t c : coordinates(sizes, i)) coords.push_back(static_cast<double>(c));
      selected.push_back(scattered[static_cast<std::size_t>(i)]);
      at(scattered, i) = static_cast<double>(1000 + rank++);
    }
    const Tensor found = nonzero(self);
    ASSERT_EQ(found.sizes(), (Shape{rank, sizes.size()}));
    ASSERT_EQ(found.dtype(), i64);
    ASSERT_EQ(elements(found), coords);
    ASSERT_TRUE(argwhere(self).equal(found));
    const std::vector<Tensor> columns = where(self);
    ASSERT_EQ(columns.size(), static_cast<std::size_t>(sizes.size()));
    std::vector<Index> list;
    for (const Tensor& column : columns) list.emplace_back(column);
    ASSERT_EQ(elements(other.index(list)), selected);
    const Tensor mask = ne(self, 0);
    ASSERT_EQ(elements(masked_select(other, mask)), selected);
    Tensor out = empty({2 * rank}, options()).slice(0, {}, {}, 2);
    masked_select_out(out, other, mask);
    ASSERT_EQ(elements(out), selected);
    const Tensor source = arange(1000, 1100, 1, options(f32));
    ASSERT_EQ(elements(masked_scatter(other, mask, source)), scattered);
  }
}

TEST_P(IndexingFunctionsTest, SelectsFromTilesOfEveryFilling) {
  // Longer than two tiles of the counting kernel; whole tiles are empty or full.
  const std::int64_t n = 3 * 4096 + 77;
  const Tensor all = arange(n, options(i64));
  for (const auto& mask :
       {eq(remainder(all, 3), 0), lt(all, 4096), ge(all, 8192), ge(all, 0), lt(all, 0)}) {
    const Tensor found = masked_select(all, mask);
    const std::vector<std::int64_t> values = found.to_vector<std::int64_t>();
    const std::vector<bool> flags = [&] {
      std::vector<bool> result;
      for (const double v : elements(mask)) result.push_back(v != 0);
      return result;
    }();
    std::vector<std::int64_t> wanted;
    for (std::int64_t i = 0; i < n; ++i) {
      if (flags[static_cast<std::size_t>(i)]) wanted.push_back(i);
    }
    ASSERT_EQ(values, wanted);
    ASSERT_EQ(nonzero(mask).view({-1}).to_vector<std::int64_t>(), wanted);
  }
}

TEST_P(IndexingFunctionsTest, NanIsNotZeroAndNegativeZeroIs) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor t = on(tensor({0.0, -0.0, std::nan(""), 1e-7, -1.0})).to(dtype);
    EXPECT_THAT(nonzero(t).view({-1}).to_vector<int>(), ElementsAre(2, 3, 4));
  }
}

TEST_P(IndexingFunctionsTest, ZeroDimTensors) {
  const Tensor one = scalar_tensor(1, options());
  EXPECT_EQ(nonzero(one).sizes(), (Shape{1, 0}));
  EXPECT_EQ(nonzero(zeros({}, options())).sizes(), (Shape{0, 0}));
  EXPECT_THAT(nonzero_numpy(one)[0].to_vector<int>(), ElementsAre(0));
  EXPECT_EQ(masked_select(one, on(tensor(true))).sizes(), Shape{1});
  EXPECT_EQ(take(one, on(tensor(0))).sizes(), Shape{});
  EXPECT_EQ(index_fill(one, 0, on(tensor(0)), 4).item<int>(), 4);
  EXPECT_EQ(index_add(one, 0, on(tensor(0)), one).item<int>(), 2);
}

TEST_P(IndexingFunctionsTest, TakeAlongDimBroadcasts) {
  const Tensor t = arange(6, options(i64)).view({2, 3});
  EXPECT_THAT(take_along_dim(t, on(tensor({{-1}, {0}})), 1).to_vector<int>(), ElementsAre(2, 3));
  EXPECT_THAT(take_along_dim(t, on(tensor({{2, 0}})), 1).to_vector<int>(), ElementsAre(2, 0, 5, 3));
  EXPECT_THAT(take_along_dim(t.slice(0, 0, 1), on(tensor({{1}, {2}})), 1).to_vector<int>(),
              ElementsAre(1, 2));
  EXPECT_THAT(take_along_dim(t, on(tensor({5, -6}))).to_vector<int>(), ElementsAre(5, 0));
  Tensor out = empty({2, 1}, options(i64));
  take_along_dim_out(out, t, on(tensor({{-1}, {0}})), 1);
  EXPECT_THAT(out.to_vector<int>(), ElementsAre(2, 3));
}

TEST_P(IndexingFunctionsTest, OutputsReceiveTheResult) {
  const Tensor t = arange(6, options()).view({2, 3});
  Tensor columns = empty({2, 2}, options()).t();
  index_select_out(columns, t, 1, on(tensor({2, 0})));
  EXPECT_THAT(columns.to_vector<int>(), ElementsAre(2, 0, 5, 3));
  gather_out(columns, t, 1, on(tensor({{0, 1}, {2, 2}})));
  EXPECT_THAT(columns.to_vector<int>(), ElementsAre(0, 1, 5, 5));
  EXPECT_ERROR(gather_out(columns, t, 1, on(tensor({{0}, {2}}))), ShapeError,
               "gather: output with shape [2, 2] doesn't match the broadcast shape [2, 1]");
  Tensor wrong = empty({2, 2}, options(f64));
  EXPECT_ERROR(index_select_out(wrong, t, 1, on(tensor({2, 0}))), DTypeError,
               "index_select: Expected out tensor to have dtype Float, but got Double instead");
}

TEST_P(IndexingFunctionsTest, BoolsReduceAsAndAndOr) {
  const Tensor self = on(tensor({true, false, true, false}));
  const Tensor index = on(tensor({0, 1, 2}));
  const Tensor source = on(tensor({false, true, true}));
  EXPECT_THAT(scatter_reduce(self, 0, index, source, "sum").to_vector<bool>(),
              ElementsAre(true, true, true, false));
  EXPECT_THAT(scatter_reduce(self, 0, index, source, "amin").to_vector<bool>(),
              ElementsAre(false, false, true, false));
  EXPECT_THAT(scatter_reduce(self, 0, index, source, "amax", false).to_vector<bool>(),
              ElementsAre(false, true, true, false));
  EXPECT_ERROR(scatter_reduce(self, 0, index, source, "mean"), DTypeError,
               "scatter_reduce: expected a dtype of numbers for a mean, but got Bool");
}

TEST_P(IndexingFunctionsTest, ExtremesKeepNan) {
  const Tensor self = on(tensor({1.0f, NAN}));
  const Tensor index = on(tensor({0, 0, 1}));
  const Tensor source = on(tensor({NAN, 3.0f, 2.0f}));
  for (const char* reduce : {"amax", "amin"}) {
    for (const float value : scatter_reduce(self, 0, index, source, reduce).to_vector<float>()) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace gantry
