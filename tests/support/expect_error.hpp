// Errors that a test expects.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

/// Fails unless `statement` throws a `Type` whose text contains `text`.
#define EXPECT_ERROR(statement, Type, text)                \
  try {                                                    \
    static_cast<void>(statement);                          \
    ADD_FAILURE() << "no error, but expected: " << text;   \
  } catch (const Type& error) {                            \
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text)); \
  }

namespace gantry::testing {

/// The text of the `E` that `call` throws; "no such error" if it throws nothing.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no such error";
}

}  // namespace gantry::testing
