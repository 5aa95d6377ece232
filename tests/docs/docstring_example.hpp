// Runs an example of a docstring on simulated devices.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

/// Examples write files into a folder of their own, and leave no settings to the next one.
class DocstringExample : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::current_path(folder_.path()); }
  void TearDown() override {
    if (trace::is_recording()) trace::stop();
    sanitizer::enable(sanitizer::Mode::off);
    memory::record_history({.enabled = false});
    for (const Device& device : devices()) {
      synchronize(device);
      memory::set_fraction(1, device);
    }
    set_device("cuda:0");
    std::filesystem::current_path(before_);
  }
  void TestBody() override {
    try {
      const Silence silence;
      run();
    } catch (const NotSupported& error) {
      GTEST_SKIP() << error.what();
    }
  }
  virtual void run() = 0;

 private:
  // A scope without the lines that examples print.
  struct Silence {
    Silence() { ::testing::internal::CaptureStdout(); }
    ~Silence() { ::testing::internal::GetCapturedStdout(); }
  };

  const std::filesystem::path before_ = std::filesystem::current_path();
  const TemporaryFolder folder_;
};

/// Registers an example.
template <class Example>
const ::testing::TestInfo* register_example(const char* name) {
  return ::testing::RegisterTest("DocstringExamples", name, nullptr, nullptr, __FILE__, __LINE__,
                                 []() -> DocstringExample* { return new Example(); });
}

}  // namespace gantry::testing

// The body of the example follows.
#define GANTRY_DOCSTRING_EXAMPLE(name)                                \
  struct Example_##name final : ::gantry::testing::DocstringExample { \
    void run() override;                                              \
  };                                                                  \
  static const auto* const registered_##name =                        \
      ::gantry::testing::register_example<Example_##name>(#name);     \
  void Example_##name::run()
