// When every rank of a group has closed it: ranks of other processes close it, or die.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/control/file.hpp"
#include "collectives/control/segment.hpp"
#include "core/processes/process_stamp.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::FlightFolder;
using testing::rank_threads;

// A bootstrap of rank 0 by which rank 1 is another process.
class Elsewhere final : public Bootstrap {
 public:
  Elsewhere(std::unique_ptr<Bootstrap> wrapped, const ProcessStamp& process)
      : wrapped_(std::move(wrapped)), process_(process) {}
  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<std::string> all = wrapped_->all_gather(bytes);
    FileHandshake other;
    if (all.at(1).size() != sizeof other) return all;
    std::memcpy(&other, all[1].data(), sizeof other);
    other.pid = process_.pid;
    other.start_time = process_.start_time;
    std::memcpy(all[1].data(), &other, sizeof other);
    return all;
  }
  int lost_rank() const noexcept override { return -1; }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>&, std::string_view) override {
    return nullptr;
  }

 private:
  const std::unique_ptr<Bootstrap> wrapped_;
  const ProcessStamp process_;
};

// The memory of a group waits for this.
TEST(GroupClosingTest, AGroupIsClosedOnceTheOtherRankHasClosedItOrIsDead) {
  const FlightFolder folder;
  for (const bool dies : {false, true}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) pause();
    }
    const std::optional<ProcessStamp> process = find_process(child);
    EXPECT_TRUE(process);
    auto bootstraps = make_local_bootstraps(2);
    Elsewhere elsewhere(std::move(bootstraps[0]), process.value_or(ProcessStamp()));
    std::array<std::unique_ptr<ControlSegment>, 2> group;
    rank_threads(2, [&](int rank) {
      Bootstrap& bootstrap = rank == 0 ? elsewhere : *bootstraps[1];
      group.at(static_cast<std::size_t>(rank)) =
          std::make_unique<ControlSegment>(bootstrap, rank, 2, milliseconds(10'000), "test");
    });
    const std::function<bool()> is_closed = group[0]->closing();
    EXPECT_TRUE(group[1]->closing()()) << "its ranks are all of this process";
    group[0]->finish(milliseconds(0));
    EXPECT_FALSE(is_closed());
    if (!dies) group[1]->finish(milliseconds(0));
    EXPECT_EQ(is_closed(), !dies);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(is_closed());
  }
}

}  // namespace
}  // namespace gantry
