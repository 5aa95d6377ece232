// Random statements about tensors, against the answers of PyTorch 2.15 on the CPU (record.py).
// GANTRY_TEST_STATEMENTS names a file of others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <string>

#include "tests/differential/operations.hpp"
#include "tests/differential/statement.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

constexpr int kReported = 20;

// Runs every statement, and reports the first that differ.
void expect_answers(Device device) {
  const char* const others = std::getenv("GANTRY_TEST_STATEMENTS");
  const char* const path = others != nullptr ? others : GANTRY_STATEMENTS;
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path;
  int statements = 0;
  std::map<std::string, int> wrong;
  int reported = 0;
  for (std::string line; std::getline(file, line); ++statements) {
    const Statement statement = parse_statement(line);
    std::string fault;
    try {
      if (hash_of(results_of(statement, device)) != statement.answer) fault = "another result";
    } catch (const std::exception& error) {
      fault = error.what();
    }
    if (fault.empty()) continue;
    ++wrong[statement.operation];
    if (++reported <= kReported) ADD_FAILURE() << line << "\n  " << fault;
  }
  for (const auto& [operation, count] : wrong) {
    ADD_FAILURE() << operation << ": " << count << " statements differ";
  }
  EXPECT_GE(statements, others != nullptr ? 1 : 50'000);
}

TEST(DifferentialTest, OnTheCpu) { expect_answers(Device::cpu()); }

TEST(DifferentialTest, OnADevice) {
  GANTRY_REQUIRE_DEVICES(1);
  expect_answers(Device::cuda(0));
}

TEST(DifferentialTest, AWrongAnswerIsSeen) {
  const Statement statement = parse_statement("0123456789abcdef add - i32:2x3:c:1 i32:3:c:2");
  EXPECT_NE(hash_of(results_of(statement, Device::cpu())), statement.answer);
  EXPECT_THROW(static_cast<void>(parse_statement("0 add")), std::runtime_error);
}

}  // namespace
}  // namespace gantry::testing
