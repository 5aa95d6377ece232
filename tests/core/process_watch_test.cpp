#include "core/processes/process_watch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/support/signal_storm.hpp"

namespace gantry {
namespace {

TEST(ProcessWatchTest, ASignalIsNotTakenForADeath) {
  const ProcessWatch self(this_process());
  ASSERT_GE(self.descriptor(), 0);
  const testing::SignalStorm storm;
  int deaths = 0;
  while (testing::SignalStorm::count() < 2000) deaths += self.has_ended() ? 1 : 0;
  EXPECT_EQ(deaths, 0);
}

TEST(ProcessWatchTest, ADescriptorThatTheProgramClosedIsNotTakenForADeath) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ProcessStamp self = this_process();
    [[maybe_unused]] const auto written = write(ends[1], &self, sizeof self);
    for (;;) pause();
  }
  ProcessStamp stamp;
  ASSERT_EQ(read(ends[0], &stamp, sizeof stamp), static_cast<ssize_t>(sizeof stamp));
  {
    const ProcessWatch peer(stamp);
    ASSERT_GE(peer.descriptor(), 0);
    EXPECT_FALSE(peer.has_ended());
    close(peer.descriptor());
    EXPECT_FALSE(peer.has_ended());
    // Its number is another file's, where something waits to be read.
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    ASSERT_EQ(dup2(ends[0], peer.descriptor()), peer.descriptor());
    EXPECT_FALSE(peer.has_ended());
    kill(child, SIGKILL);
    siginfo_t ended{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
    EXPECT_TRUE(peer.has_ended());
  }
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace gantry
