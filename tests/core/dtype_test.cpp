#include <gantry/core/dtype.hpp>

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

struct Facts {
  DType dtype;
  const char* name;
  const char* torch_name;
  std::size_t bytes;
  DTypeCategory category;
};

constexpr Facts kAll[] = {{bool_, "bool", "Bool", 1, DTypeCategory::boolean},
                          {u8, "u8", "Byte", 1, DTypeCategory::integral},
                          {i8, "i8", "Char", 1, DTypeCategory::integral},
                          {i16, "i16", "Short", 2, DTypeCategory::integral},
                          {i32, "i32", "Int", 4, DTypeCategory::integral},
                          {i64, "i64", "Long", 8, DTypeCategory::integral},
                          {f16, "f16", "Half", 2, DTypeCategory::floating},
                          {bf16, "bf16", "BFloat16", 2, DTypeCategory::floating},
                          {f32, "f32", "Float", 4, DTypeCategory::floating},
                          {f64, "f64", "Double", 8, DTypeCategory::floating}};

TEST(DTypeTest, EveryTypeHasItsNamesSizeAndCategory) {
  static_assert(std::size(kAll) == kDTypeCount);
  std::set<DType> seen;
  for (const Facts& facts : kAll) {
    seen.insert(facts.dtype);
    EXPECT_EQ(name(facts.dtype), facts.name);
    EXPECT_EQ(torch_name(facts.dtype), facts.torch_name);
    EXPECT_EQ(element_size(facts.dtype), facts.bytes) << facts.name;
    EXPECT_EQ(category(facts.dtype), facts.category) << facts.name;
    EXPECT_EQ(is_floating_point(facts.dtype), facts.category == DTypeCategory::floating);
    EXPECT_EQ(parse_dtype(facts.name), facts.dtype);
    std::ostringstream out;
    out << facts.dtype;
    EXPECT_EQ(out.str(), facts.name);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kDTypeCount));
}

TEST(DTypeTest, UnknownNameIsAnErrorThatListsTheNames) {
  for (const char* text : {"", "float", "F32", "f32 ", "int32", "c64"}) {
    try {
      (void)parse_dtype(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const DTypeError& error) {
      EXPECT_EQ(error.what(),
                "Expected one of bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 as dtype, but got '" +
                    std::string(text) + "'");
    }
  }
}

TEST(DTypeTest, DispatchHandsOverTheMatchingType) {
  for (const Facts& facts : kAll) {
    dispatch(facts.dtype, [&]<class T>(TypeTag<T>) {
      EXPECT_EQ(dtype_of<T>, facts.dtype);
      EXPECT_EQ(sizeof(T), facts.bytes);
    });
  }
  const int result = dispatch(DType::i16, [](auto) { return 42; });
  EXPECT_EQ(result, 42);
}

TEST(DTypeTest, EveryIntegerOfTheSameWidthMapsToOneType) {
  EXPECT_EQ(dtype_of<long>, DType::i64);
  EXPECT_EQ(dtype_of<long long>, DType::i64);
  EXPECT_EQ(dtype_of<int>, DType::i32);
  EXPECT_EQ(dtype_of<unsigned char>, DType::u8);
  EXPECT_EQ(dtype_of<signed char>, DType::i8);
  EXPECT_EQ(dtype_of<bool>, DType::bool_);
}

}  // namespace
}  // namespace gantry
