// Tests of groups inside one process, a thread for each rank.
#pragma once

#include <chrono>
#include <cstdlib>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/device/guard.hpp>

#include "tests/collectives/collective_suite.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry::testing {

class LocalGroupTest : public DeviceTest {
 protected:
  void TearDown() override {
    unsetenv("GANTRY_COLL_ALGO");
    DeviceTest::TearDown();
  }

  static std::vector<Device> devices(int count) {
    std::vector<Device> result;
    for (int i = 0; i < count; ++i) result.push_back(Device::cuda(i));
    return result;
  }

  /// Runs `body(suite, group)` on every rank of a group of `count`.
  template <class Body>
  static void on_ranks(int count, Body body) {
    std::vector<Communicator> group = Communicator::local(devices(count));
    rank_threads(
        count,
        [&](int rank) {
          Communicator& mine = group[static_cast<std::size_t>(rank)];
          const DeviceGuard guard(mine.device());
          CollectiveSuite suite(mine);
          body(suite, mine);
        },
        std::chrono::seconds(kIsSanitized ? 1200 : 240), [&] { group.front().abort(); });
  }
};

}  // namespace gantry::testing
