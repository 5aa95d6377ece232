// Groups of a thread for each rank whose kernels use PeerView.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/channel.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/collectives/windows/view_kernels.hpp"

namespace gantry::testing {

class PeerViewTest : public LocalGroupTest {
 protected:
  void TearDown() override {
    unsetenv("GANTRY_COLL_TIMEOUT");
    LocalGroupTest::TearDown();
  }
  static int most_ranks() { return std::min(device_count(), 4); }

  template <class Body>
  static void on_groups(int least, Body body) {
    for (int count = least; count <= most_ranks(); ++count) {
      on_ranks(count, [&](CollectiveSuite&, Communicator& group) { body(group); });
    }
  }
};

inline Stream stream_of(const Communicator& group) { return Stream::current(group.device()); }

inline Tensor words(const Communicator& group, std::int64_t count = 1) {
  return zeros({count}, {.dtype = i32, .device = group.device()});
}

inline Window some_window(const Communicator& group, std::int64_t count = 1000) {
  return group.window(zeros({count}, {.dtype = f32, .device = group.device()}));
}

// Ends a rank's part once another rank has come to a place.
class Step {
 public:
  void finish() {
    is_done_ = true;
    is_done_.notify_all();
  }
  void await() const { is_done_.wait(false); }

 private:
  std::atomic<bool> is_done_{false};
};

// The text of the TimeoutError and its late ranks.
inline std::pair<std::string, std::vector<int>> timeout_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TimeoutError& error) {
    return {error.what(), error.ranks()};
  }
  return {"nothing was thrown", {}};
}

}  // namespace gantry::testing
