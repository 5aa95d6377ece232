#include "core/env/env_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry::env {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Sets a variable for a scope.
class Setting {
 public:
  Setting(const std::string& name, const char* value) : name_(name) {
    setenv(name.c_str(), value, 1);
  }
  ~Setting() { unsetenv(name_.c_str()); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::string name_;
};

TEST(EnvCheckTest, NamesNearARealOneAreMisspelled) {
  for (const auto& [typed, meant] : {std::pair("GANTRY_SIM_DEVICE", "GANTRY_SIM_DEVICES"),
                                     {"GANTRY_SIM_DEVICS", "GANTRY_SIM_DEVICES"},
                                     {"GANTRY_COLL_ALG", "GANTRY_COLL_ALGO"},
                                     {"GANTRY_LGO", "GANTRY_LOG"},
                                     {"GANTRY_ALLOCCONF", "GANTRY_ALLOC_CONF"},
                                     {"GANTRY_SANITISER", "GANTRY_SANITIZER"}}) {
    const Setting setting(typed, "1");
    EXPECT_THAT(misspelled_names(),
                Contains(std::string(typed) + " is no variable of gantry; did " + "you mean " +
                         meant + "?"));
  }
}

TEST(EnvCheckTest, RealNamesAndDistantOnesAreNot) {
  for (const Variable& variable : variables()) {
    if (!variable.name.starts_with("GANTRY_") || std::getenv(variable.name.data()) != nullptr) {
      continue;
    }
    const Setting setting(std::string(variable.name), "1");
    EXPECT_THAT(misspelled_names(), Not(Contains(HasSubstr(std::string(variable.name) + " is"))));
  }
  for (const char* const other :
       {"GANTRY_HOME", "GANTRY_MY_OWN_SETTING", "GANTRY_", "OTHER_SIM_DEVICE", "GANTRY_URL"}) {
    const Setting setting(other, "1");
    EXPECT_THAT(misspelled_names(), Not(Contains(HasSubstr(std::string(other) + " is")))) << other;
  }
}

// What a process does that checks itself twice, with these variables.
void check_twice(const char* name, const char* value, const char* job) {
  setenv(name, value, 1);
  job == nullptr ? unsetenv("GANTRY_JOB_ID") : setenv("GANTRY_JOB_ID", job, 1);
  int code = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      check_variables();
    } catch (const InvalidArgument&) {
      ++code;
    }
  }
  std::exit(code);
}

TEST(EnvCheckDeathTest, AMisspelledNameIsToldOnceInAProcessWithoutALauncher) {
  const char* const warning = "GANTRY_SIM_DEVICE is no variable of gantry";
  EXPECT_EXIT(
      check_twice("GANTRY_SIM_DEVICE", "4", nullptr), ::testing::ExitedWithCode(0),
      ::testing::AllOf(HasSubstr(warning),
                       Not(::testing::ContainsRegex(std::string(warning) + "(.|\n)*" + warning))));
  EXPECT_EXIT(check_twice("GANTRY_SIM_DEVICE", "4", "job"), ::testing::ExitedWithCode(0),
              Not(HasSubstr(warning)));
}

TEST(EnvCheckDeathTest, AMalformedLogLevelIsAnErrorEachTime) {
  EXPECT_EXIT(check_twice("GANTRY_LOG", "loud", nullptr), ::testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace gantry::env
