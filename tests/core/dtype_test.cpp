#include <gantry/core/dtype.hpp>

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

struct Facts {
  DType dtype;
  int number;  // in files and messages between processes: it never changes
  const char* name;
  const char* torch_name;
  std::size_t bytes;
  DTypeCategory category;
};

constexpr Facts kAll[] = {{bool_, 0, "bool", "Bool", 1, DTypeCategory::boolean},
                          {u8, 1, "u8", "Byte", 1, DTypeCategory::integral},
                          {i8, 2, "i8", "Char", 1, DTypeCategory::integral},
                          {i16, 3, "i16", "Short", 2, DTypeCategory::integral},
                          {i32, 4, "i32", "Int", 4, DTypeCategory::integral},
                          {i64, 5, "i64", "Long", 8, DTypeCategory::integral},
                          {f16, 6, "f16", "Half", 2, DTypeCategory::floating},
                          {bf16, 7, "bf16", "BFloat16", 2, DTypeCategory::floating},
                          {f32, 8, "f32", "Float", 4, DTypeCategory::floating},
                          {f64, 9, "f64", "Double", 8, DTypeCategory::floating},
                          {u16, 10, "u16", "UInt16", 2, DTypeCategory::integral},
                          {u32, 11, "u32", "UInt32", 4, DTypeCategory::integral},
                          {u64, 12, "u64", "UInt64", 8, DTypeCategory::integral},
                          {f8e4m3, 13, "f8e4m3", "Float8_e4m3fn", 1, DTypeCategory::floating},
                          {f8e5m2, 14, "f8e5m2", "Float8_e5m2", 1, DTypeCategory::floating}};

TEST(DTypeTest, EveryTypeHasItsNamesSizeAndCategory) {
  static_assert(std::size(kAll) == kDTypeCount);
  std::set<DType> seen;
  for (const Facts& facts : kAll) {
    seen.insert(facts.dtype);
    EXPECT_EQ(static_cast<int>(facts.dtype), facts.number) << facts.name;
    EXPECT_EQ(computes(facts.dtype), facts.number < 10) << facts.name;
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
      EXPECT_EQ(std::string(error.what()),
                "Expected one of bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 u16 u32 u64 f8e4m3 "
                "f8e5m2 as dtype, but got '" +
                    std::string(text) + "'");
    }
  }
}

TEST(DTypeTest, DispatchHandsOverTheMatchingType) {
  for (const Facts& facts : kAll) {
    const auto check = [&]<class T>(TypeTag<T>) {
      EXPECT_EQ(dtype_of<T>, facts.dtype);
      EXPECT_EQ(sizeof(T), facts.bytes);
    };
    dispatch_any(facts.dtype, check);
    if (computes(facts.dtype)) dispatch(facts.dtype, check);
  }
  const int result = dispatch(DType::i16, [](auto) { return 42; });
  EXPECT_EQ(result, 42);
}

TEST(DTypeTest, DispatchRefusesTypesThatDoNotCompute) {
  for (const DType dtype : {u16, u32, u64, f8e4m3, f8e5m2}) {
    try {
      dispatch(dtype, [](auto) { ADD_FAILURE() << "called"; });
      ADD_FAILURE() << dtype;
    } catch (const DTypeError& error) {
      EXPECT_EQ(std::string(error.what()),
                "gantry does not compute with " + std::string(name(dtype)) + "; cast it with to()");
    }
  }
}

TEST(DTypeTest, EveryIntegerOfTheSameWidthMapsToOneType) {
  EXPECT_EQ(dtype_of<long>, DType::i64);
  EXPECT_EQ(dtype_of<long long>, DType::i64);
  EXPECT_EQ(dtype_of<int>, DType::i32);
  EXPECT_EQ(dtype_of<unsigned char>, DType::u8);
  EXPECT_EQ(dtype_of<signed char>, DType::i8);
  EXPECT_EQ(dtype_of<bool>, DType::bool_);
  EXPECT_EQ(dtype_of<unsigned short>, DType::u16);
  EXPECT_EQ(dtype_of<unsigned>, DType::u32);
  EXPECT_EQ(dtype_of<unsigned long>, DType::u64);
  EXPECT_EQ(dtype_of<unsigned long long>, DType::u64);
}

}  // namespace
}  // namespace gantry
