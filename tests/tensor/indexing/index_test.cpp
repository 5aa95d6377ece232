#include <gantry/tensor/index.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_places;
using testing::elements;
using ::testing::ThrowsMessage;

TEST(IndexTest, ReadsAsPythonDoes) {
  for (const Device place : all_places()) {
    const Tensor t = arange(24, {.dtype = i32, .device = place}).view({2, 3, 4});
    EXPECT_EQ(t.index({1, 2, 3}).item<int>(), 23);
    EXPECT_EQ(elements(t.index({-1, 0})), (std::vector<double>{12, 13, 14, 15}));
    EXPECT_EQ(elements(t.index({Ellipsis, 1})), (std::vector<double>{1, 5, 9, 13, 17, 21}));
    EXPECT_EQ(elements(t.index({"...", Slice(None, None, 3)})),
              (std::vector<double>{0, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23}));
    EXPECT_EQ(t.index({None, Ellipsis, None}).sizes(), (Shape{1, 2, 3, 4, 1}));
    EXPECT_EQ(t.index({0, None, Slice(1)}).sizes(), (Shape{1, 2, 4}));
    EXPECT_EQ(t.index({}).sizes(), (Shape{2, 3, 4}));
    EXPECT_EQ(t.index({Slice(5, 9)}).sizes(), (Shape{0, 3, 4}));
    EXPECT_TRUE(t.index({0}).is_view_of(t));
    EXPECT_EQ(zeros({}).index({Ellipsis}).sizes(), Shape{});
    EXPECT_EQ(zeros({}).index({None}).sizes(), (Shape{1}));
  }
}

// Random index lists on a [2, 3, 4] tensor, compared with an element-by-element oracle.
TEST(IndexTest, AgreesWithTheOracleOnRandomLists) {
  std::mt19937 random(11);
  const Tensor t = arange(24, {.dtype = i32}).view({2, 3, 4});
  for (int round = 0; round < 2000; ++round) {
    std::vector<Index> indices;
    std::vector<std::vector<std::int64_t>> chosen;  // indices along each dim of t
    Shape sizes;
    const int given = static_cast<int>(random() % 4);
    for (int d = 0; d < 3; ++d) {
      const std::int64_t size = t.size(d);
      std::vector<std::int64_t> positions;
      const auto bound = [&] { return static_cast<std::int64_t>(random() % 11) - 5; };
      if (random() % 4 == 0 && sizes.size() < 7 && d < given) {
        indices.emplace_back(None);
        sizes.push_back(1);
      }
      if (d < given && random() % 2 == 0) {
        const std::int64_t position = static_cast<std::int64_t>(random()) % size;
        indices.emplace_back(random() % 2 == 0 ? position : position - size);
        chosen.push_back({position});
        continue;
      }
      std::int64_t start = 0;
      std::int64_t stop = size;
      std::int64_t step = 1;
      if (d < given) {
        const std::int64_t first = bound();
        const std::int64_t last = bound();
        step = 1 + static_cast<std::int64_t>(random() % 3);
        indices.emplace_back(Slice(first, last, step));
        start = std::clamp<std::int64_t>(first < 0 ? first + size : first, 0, size);
        stop = std::clamp<std::int64_t>(last < 0 ? last + size : last, 0, size);
      }
      for (std::int64_t p = start; p < stop; p += step) positions.push_back(p);
      sizes.push_back(static_cast<std::int64_t>(positions.size()));
      chosen.push_back(positions);
    }
    std::vector<double> wanted;
    for (const std::int64_t i : chosen[0]) {
      for (const std::int64_t j : chosen[1]) {
        for (const std::int64_t k : chosen[2]) {
          wanted.push_back(static_cast<double>(i * 12 + j * 4 + k));
        }
      }
    }
    const Tensor result = t.index(indices);
    ASSERT_EQ(result.sizes(), sizes);
    ASSERT_EQ(elements(result), wanted);
  }
}

TEST(IndexTest, WritesNumbersTensorsAndSums) {
  for (const Device place : all_places()) {
    Tensor t = zeros({2, 3}, {.dtype = i32, .device = place});
    t.index_put_({0}, 4);
    t.index_put_({Ellipsis, Slice(1, 3)}, tensor({7, 8}, {.device = place}));
    t.index_put_({1, 0}, tensor({9}, {.device = place}).view({}));
    EXPECT_EQ(elements(t), (std::vector<double>{4, 7, 8, 9, 7, 8}));
    t.index_put_({Slice(), 0}, 1, true);
    EXPECT_EQ(elements(t), (std::vector<double>{5, 7, 8, 10, 7, 8}));
  }
}

TEST(IndexTest, WritesValuesWithLeadingOnes) {
  for (const Device place : all_places()) {
    Tensor t = zeros({2, 3}, {.dtype = i32, .device = place});
    t.index_put_({0, 0}, tensor({9}, {.device = place}));
    t.index_put_({1}, arange(3, {.device = place}).view({1, 1, 3}));
    t.index_put_({1, 2}, full({1, 1}, 5, {.device = place}), true);
    EXPECT_EQ(elements(t), (std::vector<double>{9, 0, 0, 0, 1, 7}));
    EXPECT_THROW(t.index_put_({1}, zeros({2, 3}, {.device = place})), ShapeError);
    EXPECT_EQ(elements(t), (std::vector<double>{9, 0, 0, 0, 1, 7}));
  }
}

TEST(IndexTest, RejectsIndicesOutOfRange) {
  const Tensor t = zeros({3, 4});
  const auto index = [&](std::initializer_list<Index> list) {
    return [&t, values = std::vector<Index>(list)] { static_cast<void>(t.index(values)); };
  };
  EXPECT_THAT(index({5}), ThrowsMessage<IndexError>(
                              "index: index 5 is out of bounds for dimension 0 with size 3"));
  EXPECT_THAT(index({0, -5}), ThrowsMessage<IndexError>(
                                  "index: index -5 is out of bounds for dimension 1 with size 4"));
  EXPECT_THAT(index({0, 0, 0}),
              ThrowsMessage<IndexError>("index: too many indices for tensor of dimension 2"));
  EXPECT_THAT(index({Ellipsis, Ellipsis}),
              ThrowsMessage<IndexError>("index: an index can only have a single ellipsis ('...')"));
  EXPECT_THAT(index({Slice(0, 1, 0)}),
              ThrowsMessage<IndexError>("index: slice step cannot be zero"));
  EXPECT_THAT(index({Slice(0, 1, -1)}),
              ThrowsMessage<IndexError>("index: step must be greater than zero, but got -1"));
  EXPECT_THAT([] { static_cast<void>(zeros({}).index({0})); },
              ThrowsMessage<IndexError>(
                  "index: invalid index of a 0-dim tensor. Use `tensor.item<T>()` to convert a "
                  "0-dim tensor to a number"));
  EXPECT_THAT([] { static_cast<void>(Index("..")); },
              ThrowsMessage<InvalidArgument>("Index: expected \"...\", but got \"..\""));
}

TEST(IndexTest, WritesItsText) {
  EXPECT_EQ(Index(-3).str(), "-3");
  EXPECT_EQ(Index(Slice(1, 5, 2)).str(), "1:5:2");
  EXPECT_EQ(Index(Slice(None, 4)).str(), ":4");
  EXPECT_EQ(Index(None).str(), "None");
  EXPECT_EQ(Index("...").str(), "...");
}

TEST(IndexTest, BoolsInsertADimOfSizeOneOrNone) {
  for (const Device place : all_places()) {
    Tensor t = arange(6, {.device = place}).view({2, 3});
    EXPECT_EQ(t.index({true}).sizes(), (Shape{1, 2, 3}));
    EXPECT_EQ(t.index({false}).sizes(), (Shape{0, 2, 3}));
    EXPECT_EQ(t.index({1, true}).sizes(), (Shape{1, 3}));
    EXPECT_EQ(t.index({Ellipsis, true}).sizes(), (Shape{2, 3, 1}));
    EXPECT_EQ(t.index({true, true}).sizes(), (Shape{1, 2, 3}));
    EXPECT_EQ(t.index({true, false}).sizes(), (Shape{0, 2, 3}));
    EXPECT_EQ(t.index({Slice(), true, 0, true}).sizes(), (Shape{2, 1}));
    EXPECT_EQ(t.index({Slice(), true, Slice(), true}).sizes(), (Shape{1, 2, 3}));
    EXPECT_EQ(scalar_tensor(3, {.device = place}).index({true}).sizes(), (Shape{1}));
    EXPECT_TRUE(t.index({true}).is_view_of(t));
    t.index_put_({false}, 9);
    EXPECT_EQ(elements(t), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    t.index_put_({true, 0}, 9);
    EXPECT_EQ(elements(t), (std::vector<double>{9, 9, 9, 3, 4, 5}));
  }
  EXPECT_EQ(Index(true).str(), "True");
  EXPECT_EQ(Index(1).str(), "1");
}

}  // namespace
}  // namespace gantry
