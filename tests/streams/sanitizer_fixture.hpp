// What the tests of the stream sanitizer share.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include <gantry/core/log.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::testing {

/// Runs with the sanitizer in mode warn, without its warnings, and restores the mode.
class SanitizerTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    mode_ = sanitizer::mode();
    level_ = logging::level();
    logging::set_level(logging::Level::error);
    for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
    sanitizer::enable(sanitizer::Mode::off);
    sanitizer::enable(sanitizer::Mode::warn);
    sanitizer::clear();
  }
  void TearDown() override {
    if (!IsSkipped()) {
      for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
      sanitizer::enable(mode_);
      sanitizer::clear();
      logging::set_level(level_);
    }
    DeviceTest::TearDown();
  }

 private:
  sanitizer::Mode mode_ = sanitizer::Mode::off;
  logging::Level level_ = logging::Level::warn;
};

/// Runs `work` with `stream` current.
inline void on(const Stream& stream, const std::function<void()>& work) {
  const StreamGuard guard(stream);
  work();
}

}  // namespace gantry::testing
