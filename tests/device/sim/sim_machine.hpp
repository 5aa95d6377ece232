// What the tests of the simulator share: a machine of their own and ways to hold a stream up.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include <gantry/core/error.hpp>

#include "device/sim/sim_driver.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace gantry::testing {

/// A simulated machine apart from the process's own.
class SimMachineTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 4;
  static constexpr std::size_t kBytes = 4096;

  SimMachineTest()
      : owner_(make_sim_driver(kDevices)), driver_(dynamic_cast<sim::SimDriver&>(*owner_)) {}

  /// The bytes of device memory, once the stream's work is done.
  std::string read(const void* data, std::size_t bytes, NativeStream stream) {
    std::string host(bytes, '?');
    driver_.copy(host.data(), data, bytes, stream);
    return host;
  }

  std::unique_ptr<Driver> owner_;
  sim::SimDriver& driver_;
};

/// Keeps a stream busy until open() or the end of the scope.
class Gate {
 public:
  explicit Gate(NativeStream stream) {
    sim::launch(stream, [opened = opened_.get_future().share()] { opened.wait(); });
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (!is_open_) opened_.set_value();
    is_open_ = true;
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
};

/// Calls `call` and expects CudaError `code` with `text` in its message.
template <class Call>
void expect_cuda_error(int code, const std::string& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "expected CudaError " << code << " (" << text << "), but nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

}  // namespace gantry::testing
