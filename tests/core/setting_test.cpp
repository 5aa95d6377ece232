#include "core/env/setting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/env/env_check.hpp"
#include "core/env/settings.hpp"

namespace gantry::env {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The variable has a value within the scope.
class WithValue {
 public:
  WithValue(const char* name, const char* value) : name_(name), before_(env::get(name)) {
    setenv(name, value, 1);
  }
  ~WithValue() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  WithValue(const WithValue&) = delete;
  WithValue& operator=(const WithValue&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string refusal(const Setting& setting, const char* value) {
  const WithValue scope(setting.name(), value);
  try {
    setting.check();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

constexpr ChoiceSetting kChoice("GANTRY_TEST_CHOICE", "off|warn|error (warn)", "a test's");
constexpr NumberSetting kNumber("GANTRY_TEST_NUMBER", -1, 64, "-1..64", "a test's");
constexpr SwitchSetting kSwitch("GANTRY_TEST_SWITCH", true, "0|1 (1)", "a test's");
constexpr BytesSetting kBytes("GANTRY_TEST_BYTES", "bytes", "a test's");

TEST(SettingTest, AnUnsetAndAnEmptyVariableHaveTheDefault) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    for (const Setting* setting :
         std::initializer_list<const Setting*>{&kChoice, &kNumber, &kSwitch, &kBytes}) {
      value == nullptr ? unsetenv(setting->name()) : setenv(setting->name(), value, 1);
      EXPECT_NO_THROW(setting->check());
      EXPECT_EQ(setting->text(), "");
    }
    EXPECT_EQ(kChoice.get(), "warn");
    EXPECT_EQ(kNumber.get(), std::nullopt);
    EXPECT_TRUE(kSwitch.get());
    EXPECT_EQ(kBytes.get(), std::nullopt);
  }
}

TEST(SettingTest, ValuesAreThoseOfTheDescription) {
  EXPECT_THAT(kChoice.choices(), ElementsAre("off", "warn", "error"));
  for (const char* word : {"off", "warn", "error"}) {
    const WithValue scope(kChoice.name(), word);
    EXPECT_EQ(kChoice.get(), word);
  }
  EXPECT_EQ(refusal(kChoice, "warn (warn)"),
            "GANTRY_TEST_CHOICE: expected off, warn or error, but got 'warn (warn)'");
  EXPECT_EQ(refusal(kNumber, "64"), "");
  EXPECT_EQ(refusal(kNumber, "-1"), "");
  EXPECT_EQ(refusal(kNumber, "65"),
            "GANTRY_TEST_NUMBER: expected a whole number from -1 to 64, but got '65'");
  EXPECT_THAT(refusal(kNumber, "-2"), HasSubstr("'-2'"));
  EXPECT_THAT(refusal(kSwitch, "maybe"), HasSubstr("GANTRY_TEST_SWITCH: expected 1/0"));
  EXPECT_THAT(refusal(kBytes, "much"), HasSubstr("GANTRY_TEST_BYTES: expected a byte count"));
}

// A default is taken without a check.
TEST(SettingsTest, EveryChoiceHasOneOfItsWordsAsDefault) {
  for (const Setting* setting : settings()) {
    const auto* choice = dynamic_cast<const ChoiceSetting*>(setting);
    if (choice == nullptr) continue;
    unsetenv(choice->name());
    EXPECT_THAT(choice->choices(), ::testing::Contains(choice->get())) << choice->name();
  }
}

TEST(SettingsTest, EveryVariableStandsOnceInThePublicTable) {
  std::set<std::string_view> names;
  ASSERT_EQ(settings().size(), variables().size());
  for (std::size_t i = 0; i < variables().size(); ++i) {
    EXPECT_EQ(variables()[i].name, settings()[i]->name());
    EXPECT_TRUE(names.insert(variables()[i].name).second) << variables()[i].name;
  }
}

TEST(SettingsTest, EveryVariableWithAGrammarIsCheckedWithTheWholeEnvironment) {
  int checked = 0;
  for (const Setting* setting : settings()) {
    if (setting->name() == std::string("GANTRY_LOG")) continue;  // read once in a process
    const std::string text = refusal(*setting, "/no such value");
    if (text.empty()) continue;
    ++checked;
    EXPECT_THAT(text, ::testing::StartsWith(std::string(setting->name()) + ": "));
    EXPECT_THAT(text, HasSubstr("expected"));
    EXPECT_THAT(text, HasSubstr("/no such value"));
    const WithValue scope(setting->name(), "/no such value");
    EXPECT_THROW(check_variables(), InvalidArgument) << setting->name();
  }
  EXPECT_GE(checked, 26);
}

}  // namespace
}  // namespace gantry::env
