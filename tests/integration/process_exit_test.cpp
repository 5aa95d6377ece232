// Processes that exit while background threads of gantry work.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/ipc/exporter_fixture.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::Command;
using gantry::testing::ExporterProcess;
using gantry::testing::Outcome;

constexpr int kKindsOfSteps = 3;

int rounds() {
  return static_cast<int>(env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000).value_or(48));
}

class ProcessExitTest : public gantry::testing::ExporterTest {
 protected:
  static Command exiting_program(int steps, const std::string& thread,
                                 const std::vector<std::string>& handles = {}) {
    Command command{.argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/exiting_program",
                             std::to_string(steps), thread}};
    command.argv.insert(command.argv.end(), handles.begin(), handles.end());
    return command;
  }
  static std::vector<std::string> handles_of(const ExporterProcess& process) {
    return {gantry::testing::to_text(process.handle), gantry::testing::to_text(process.neighbour)};
  }
};

TEST_P(ProcessExitTest, BackgroundThreadsLeaveBeforeTheDriverEnds) {
  ExporterProcess exporter(GetParam());
  for (int steps = 0; steps <= 2 * kKindsOfSteps; ++steps) {
    for (const char* thread : {"main", "thread"}) {
      const Outcome outcome = run_command(exiting_program(steps, thread, handles_of(exporter)));
      EXPECT_EQ(outcome.exit_code, 0) << steps << " steps, " << thread << outcome.describe();
    }
  }
  exporter.release();
}

// Several at once: a busy machine stops threads in the middle of their calls.
TEST_P(ProcessExitTest, ProcessesMayExitAtEveryPoint) {
  ExporterProcess exporter(GetParam());
  std::atomic<int> next{0};
  std::vector<std::thread> starters;
  for (int i = 0; i < 8; ++i) {
    starters.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      while (next++ < rounds()) {
        const int steps = std::uniform_int_distribution(0, 24)(random);
        const char* thread = random() % 2 == 0 ? "main" : "thread";
        const Outcome outcome = run_command(exiting_program(steps, thread, handles_of(exporter)));
        EXPECT_EQ(outcome.exit_code, 0) << steps << " steps, " << thread << outcome.describe();
      }
    });
  }
  for (std::thread& starter : starters) starter.join();
  exporter.release();
}

// An import succeeds, or fails with its own error.
TEST_P(ProcessExitTest, ExportersMayExitWhileTheyServe) {
  for (int round = 0; round < rounds() / 8; ++round) {
    gantry::testing::PipeProcess exporter(exiting_program(2 + round % 7, "main").argv);
    const StreamGuard guard(Stream::from_pool());
    for (std::string line = exporter.read_line(); !line.empty(); line = exporter.read_line()) {
      try {
        const ImportedBlock block = import_ipc(gantry::testing::from_text(line));
        EXPECT_NE(block.data(), nullptr);
      } catch (const PeerLostError&) {
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("import_ipc"), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(exporter.wait(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, ProcessExitTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace gantry::memory
