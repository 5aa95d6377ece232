// Signals to the processes of a job. All of them are children of this process, as orphans are.
#include "launcher/run/processes/rank_processes.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A process that tells which signals it gets; the leader of a group, or a member of `group`.
class Listener {
 public:
  explicit Listener(pid_t group = 0) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_ = fork();
    if (pid_ == 0) {
      for (;;) {
        const auto signal = static_cast<unsigned char>(sigwaitinfo(&all, nullptr));
        if (write(ends[1], &signal, 1) != 1) _exit(1);
      }
    }
    setpgid(pid_, group);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    close(ends[1]);
    told_ = UniqueFd(ends[0]);
  }
  ~Listener() {
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // The signals that it got since the last call. Of several pending ones it takes SIGRTMAX last.
  [[nodiscard]] std::vector<int> heard() const {
    EXPECT_EQ(kill(pid_, SIGRTMAX), 0);
    std::vector<int> signals;
    for (unsigned char signal = 0; read(told_.get(), &signal, 1) == 1 && signal != SIGRTMAX;) {
      signals.push_back(signal);
    }
    return signals;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd told_;
};

class RankProcessesTest : public ::testing::Test {
 protected:
  RankProcessesTest() { processes_.reset(2); }

  const testing::TemporaryFolder folder_;
  Reaper reaper_{"rank-processes-test-" + std::to_string(getpid()), folder_ / "scratch"};
  RankProcesses processes_{reaper_};
};

TEST_F(RankProcessesTest, AnOrphanGetsEachSignalOnce) {
  const Listener orphan;
  EXPECT_THAT(processes_.orphans(), ElementsAre(orphan.pid()));
  processes_.signal_everyone(SIGTERM);
  EXPECT_THAT(orphan.heard(), ElementsAre(SIGTERM));
  processes_.signal_late(processes_.orphans());
  EXPECT_THAT(orphan.heard(), IsEmpty());
  const Listener late;
  for (int look = 0; look < 2; ++look) processes_.signal_late(processes_.orphans());
  EXPECT_THAT(orphan.heard(), IsEmpty());
  EXPECT_THAT(late.heard(), ElementsAre(SIGTERM));
  processes_.signal_everyone(SIGUSR1);
  processes_.signal_late(processes_.orphans());
  EXPECT_THAT(orphan.heard(), ElementsAre(SIGUSR1));
  EXPECT_THAT(late.heard(), ElementsAre(SIGUSR1));
  // The number of a process that was waited for belongs to another one.
  processes_.forget(late.pid());
  processes_.signal_late(processes_.orphans());
  EXPECT_THAT(orphan.heard(), IsEmpty());
  EXPECT_THAT(late.heard(), ElementsAre(SIGUSR1));
}

TEST_F(RankProcessesTest, ANewStartKnowsNoSignalOfTheOneBefore) {
  const Listener orphan;
  processes_.signal_everyone(SIGTERM);
  EXPECT_THAT(orphan.heard(), ElementsAre(SIGTERM));
  processes_.reset(2);
  processes_.signal_late(processes_.orphans());
  EXPECT_THAT(orphan.heard(), IsEmpty());
}

TEST_F(RankProcessesTest, ARankIsAnOrphanFromItsEndOn) {
  const Listener first;
  const Listener second;
  processes_.add(0, first.pid());
  processes_.add(1, second.pid());
  EXPECT_THAT(processes_.orphans(), IsEmpty());
  EXPECT_EQ(processes_.running_rank(second.pid()), 1);
  processes_.mark_ended(1);
  EXPECT_EQ(processes_.running_rank(second.pid()), std::nullopt);
  EXPECT_EQ(processes_.running_rank(first.pid()), 0);
  EXPECT_THAT(processes_.orphans(), ElementsAre(second.pid()));
}

TEST_F(RankProcessesTest, ChildrenOfBeforeAreNoOrphansUntilTheirNumberIsFree) {
  const Listener earlier;
  RankProcesses processes(reaper_);
  processes.reset(1);
  const Listener orphan;
  EXPECT_THAT(processes.orphans(), ElementsAre(orphan.pid()));
  processes.signal_everyone(SIGTERM);
  EXPECT_THAT(earlier.heard(), IsEmpty());
  processes.forget(earlier.pid());
  EXPECT_THAT(processes.orphans(), UnorderedElementsAre(orphan.pid(), earlier.pid()));
}

TEST_F(RankProcessesTest, SignalsReachRanksOrTheirGroups) {
  const Listener rank;
  const Listener child(rank.pid());
  const Listener other;
  processes_.add(0, rank.pid());
  processes_.add(1, other.pid());
  processes_.signal_ranks(SIGUSR1);
  EXPECT_THAT(rank.heard(), ElementsAre(SIGUSR1));
  EXPECT_THAT(child.heard(), IsEmpty());
  EXPECT_THAT(other.heard(), ElementsAre(SIGUSR1));
  processes_.signal_groups(SIGUSR2);
  EXPECT_THAT(rank.heard(), ElementsAre(SIGUSR2));
  EXPECT_THAT(child.heard(), ElementsAre(SIGUSR2));
  EXPECT_THAT(other.heard(), ElementsAre(SIGUSR2));
  processes_.mark_ended(0);
  processes_.signal_ranks(SIGUSR1);
  EXPECT_THAT(rank.heard(), IsEmpty()) << "its number may have a new owner";
  EXPECT_THAT(other.heard(), ElementsAre(SIGUSR1));
  processes_.signal_groups(SIGUSR2);
  EXPECT_THAT(child.heard(), ElementsAre(SIGUSR2)) << "it outlived its parent";
}

TEST_F(RankProcessesTest, ARankInAnotherGroupGetsTheSignalsOfItsOwn) {
  const Listener outsider;
  const Listener rank(outsider.pid());
  processes_.add(1, rank.pid());
  processes_.signal_groups(SIGUSR1);
  EXPECT_THAT(rank.heard(), ElementsAre(SIGUSR1));
  EXPECT_THAT(outsider.heard(), IsEmpty());
}

TEST_F(RankProcessesTest, TheGroupOfAReplacedRankIsKilled) {
  const Listener rank;
  const Listener other;
  processes_.add(0, rank.pid());
  processes_.add(1, other.pid());
  processes_.mark_ended(0);
  processes_.replace(0);
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(rank.pid()), &end, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(end.si_status, SIGKILL);
  EXPECT_THAT(other.heard(), IsEmpty());
}

}  // namespace
}  // namespace gantry::launcher
