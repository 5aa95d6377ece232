// Names of operations and element types on gantry-bench's command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include <gantry/core/error.hpp>

#include "tests/support/subprocess.hpp"
#include "tools/bench/operation.hpp"
#include "tools/bench/options.hpp"

namespace gantry::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BenchNamesTest, NamesOfNcclTestsAreUnderstood) {
  for (const CollectiveKind kind : operations()) {
    std::string text(operation_name(kind));
    EXPECT_EQ(parse_operation(text + "_perf"), kind) << text;
    std::erase(text, '_');
    EXPECT_EQ(parse_operation(text), kind) << text;
  }
  for (const char* text : {"", "all", "_", "allreduce2", "perf", "_perf", "reduce_all"}) {
    EXPECT_THROW((void)parse_operation(text), InvalidArgument) << text;
  }
  const std::map<std::string, DType> dtypes{
      {"int8", DType::i8},         {"uint8", DType::u8},        {"int32", DType::i32},
      {"uint32", DType::u32},      {"int64", DType::i64},       {"uint64", DType::u64},
      {"half", DType::f16},        {"float", DType::f32},       {"double", DType::f64},
      {"bfloat16", DType::bf16},   {"f8e4m3", DType::f8e4m3},   {"f8e5m2", DType::f8e5m2},
      {"fp8_e4m3", DType::f8e4m3}, {"fp8_e5m2", DType::f8e5m2}, {"i16", DType::i16}};
  for (const auto& [text, dtype] : dtypes) EXPECT_EQ(parse_element_type(text), dtype) << text;
  for (const char* text : {"", "Float", "float32 ", "fp8", "complex"}) {
    EXPECT_THROW((void)parse_element_type(text), DTypeError) << text;
  }
}

TEST(BenchNamesTest, TheProgramTakesThem) {
  const testing::Outcome outcome =
      testing::run_command({.argv = {GANTRY_TEST_BENCH, "-o", "allreduce,sendrecv_perf", "-d",
                                     "float", "-e", "8", "-n", "1", "--batches", "1"},
                            .environment = {{"GANTRY_SIM_DEVICES", "2"}}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr(" f32 "), HasSubstr(" all_reduce "), HasSubstr(" send_recv ")));
}

TEST(BenchNamesTest, HelpFitsAScreen) {
  const std::string help = parse_options({"--help"}).text;
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 24);
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--max-seconds")));
  EXPECT_THAT(parse_options({"--help-all"}).text,
              AllOf(HasSubstr("--max-seconds"), HasSubstr("Exit code:")));
}

}  // namespace
}  // namespace gantry::bench
