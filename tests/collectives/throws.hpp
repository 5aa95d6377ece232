// Expects an exception of one type whose text contains a phrase.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gantry::testing {

template <class Exception, class Action>
void expect_throws(Action action, const std::string& phrase) {
  try {
    action();
    ADD_FAILURE() << "expected an exception with '" << phrase << "', but nothing was thrown";
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(phrase));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected another type of exception with '" << phrase
                  << "', but got: " << error.what();
  }
}

}  // namespace gantry::testing
