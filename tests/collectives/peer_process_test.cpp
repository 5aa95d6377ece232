#include "collectives/peers/process.hpp"

#include <gtest/gtest.h>

#include "tests/support/signal_storm.hpp"

namespace gantry {
namespace {

TEST(PeerProcessTest, ASignalIsNotTakenForADeath) {
  const PeerProcess self(this_process());
  ASSERT_GE(self.descriptor(), 0);
  const testing::SignalStorm storm;
  int deaths = 0;
  while (testing::SignalStorm::count() < 2000) deaths += self.alive() ? 0 : 1;
  EXPECT_EQ(deaths, 0);
}

}  // namespace
}  // namespace gantry
