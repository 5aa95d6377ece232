#include <gantry/core/dims.hpp>

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <sstream>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

std::string shape_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DimsTest, IsMadeFromListVectorAndSpan) {
  const std::vector<std::int64_t> vector{2, 3, 4};
  EXPECT_EQ(Dims({2, 3, 4}), Dims(vector));
  EXPECT_EQ(Dims(std::span<const std::int64_t>(vector)), Dims(vector));
  EXPECT_EQ(Dims(vector).vec(), vector);
  EXPECT_EQ(Dims(std::array<std::int64_t, 3>{2, 3, 4}), Dims(vector));
  EXPECT_TRUE(Dims().empty());
  EXPECT_EQ(Dims::filled(3, 7), Dims({7, 7, 7}));
  EXPECT_EQ(Dims::filled(0, 7), Dims());
}

TEST(DimsTest, OneIntegerIsOneDimension) {
  const Shape shape = 4;
  EXPECT_EQ(shape, Shape({4}));
  EXPECT_EQ(Dims(-1), Dims({-1}));
  static_assert(!std::is_convertible_v<bool, Dims>);
  static_assert(!std::is_convertible_v<double, Dims>);
}

TEST(DimsTest, NinthDimensionIsAnError) {
  const char* const text = "Expected at most 8 dimensions, but got 9";
  EXPECT_EQ(shape_error_of([] { (void)Dims({1, 2, 3, 4, 5, 6, 7, 8, 9}); }), text);
  EXPECT_EQ(shape_error_of([] { (void)Dims(std::vector<std::int64_t>(9)); }), text);
  EXPECT_EQ(shape_error_of([] { (void)Dims::filled(9, 1); }), text);
  Dims full = Dims::filled(8, 1);
  EXPECT_EQ(shape_error_of([&] { full.push_back(2); }), text);
  EXPECT_EQ(shape_error_of([&] { full.insert(0, 2); }), text);
  EXPECT_EQ(full, Dims::filled(8, 1)) << "a failed insertion must change nothing";
}

// Every insertion and removal, against std::vector.
TEST(DimsTest, InsertsAndErasesAsAVectorDoes) {
  for (int size = 0; size < kMaxDims; ++size) {
    std::vector<std::int64_t> start;
    for (int i = 0; i < size; ++i) start.push_back(10 + i);
    for (int at = 0; at <= size; ++at) {
      Dims dims(start);
      std::vector<std::int64_t> expected = start;
      dims.insert(at, -1);
      expected.insert(expected.begin() + at, -1);
      EXPECT_EQ(dims.vec(), expected);
      dims.erase(at);
      EXPECT_EQ(dims.vec(), start);
    }
    Dims pushed(start);
    pushed.push_back(99);
    EXPECT_EQ(pushed.back(), 99);
    EXPECT_EQ(pushed.front(), size == 0 ? 99 : 10);
    EXPECT_EQ(pushed.size(), size + 1);
  }
}

TEST(DimsTest, ProductOfNothingIsOne) {
  EXPECT_EQ(Dims().product(), 1);
  EXPECT_EQ(Dims({2, 3, 4}).product(), 24);
  EXPECT_EQ(Dims({5, 0, 7}).product(), 0);
}

TEST(DimsTest, ComparesSizeAndValues) {
  EXPECT_NE(Dims({1, 2}), Dims({1, 2, 1}));
  EXPECT_NE(Dims({1, 2}), Dims({2, 1}));
  Dims shrunk({1, 2, 3});
  shrunk.erase(2);
  EXPECT_EQ(shrunk, Dims({1, 2})) << "what was erased must not count";
}

TEST(DimsTest, WritesAsErrorTextsDo) {
  EXPECT_EQ(Dims({2, 3}).str(), "[2, 3]");
  EXPECT_EQ(Dims({4}).str(), "[4]");
  EXPECT_EQ(Dims().str(), "[]");
  EXPECT_EQ(Dims({2, 3}).str_x(), "2x3");
  EXPECT_EQ(Dims().str_x(), "");
  std::ostringstream out;
  out << Dims({0, -1});
  EXPECT_EQ(out.str(), "[0, -1]");
}

TEST(DimsTest, IteratesInPlace) {
  Dims dims({1, 2, 3});
  for (std::int64_t& value : dims) value *= 2;
  dims[0] = 9;
  EXPECT_EQ(dims, Dims({9, 4, 6}));
  EXPECT_EQ(dims.data()[2], 6);
}

TEST(DimsTest, EqualListsHaveEqualHashes) {
  const std::hash<Dims> hash;
  Dims grown{2, 3};
  grown.push_back(4);
  grown.erase(2);
  EXPECT_EQ(hash(grown), hash(Dims{2, 3}));
  std::unordered_map<Shape, int> ids;
  int count = 0;
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t j = 0; j < 20; ++j) ids[Shape{i, j}] = count++;
    ids[Shape{i}] = count++;
  }
  ids[Shape{}] = count++;
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(count));
  std::unordered_set<std::size_t> hashes;
  for (const auto& [shape, id] : ids) hashes.insert(hash(shape));
  EXPECT_GT(hashes.size(), ids.size() * 9 / 10);
}

}  // namespace
}  // namespace gantry
