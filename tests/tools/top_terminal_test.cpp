// gantry-top on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "job/flight_folder.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/pseudo_terminal.hpp"

namespace gantry::top {
namespace {

using testing::eventually;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TerminalProcess;

constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr const char* kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr const char* kHome = "\x1b[H";
constexpr const char* kEraseBelow = "\x1b[J";

class TopTerminalTest : public ::testing::Test {
 protected:
  TopTerminalTest() {
    setenv("GANTRY_NVML_PATH", GANTRY_TEST_FAKE_NVML, 1);
    setenv("FAKE_NVML", "A rather long name,GPU-a,0;H200,GPU-b,1", 1);
    setenv("TERM", "xterm", 1);
  }
  ~TopTerminalTest() override {
    for (const char* name : {"GANTRY_NVML_PATH", "FAKE_NVML", "TERM"}) unsetenv(name);
  }
  static TerminalProcess start(unsigned short columns = 80, unsigned short rows = 24,
                               const std::string& interval = "0.05") {
    return {{GANTRY_TEST_TOP, "--interval", interval}, columns, rows};
  }

  FlightFolder folder_;
};

// Echo and lines, as a shell needs them.
bool is_usable(const termios& settings) {
  return (settings.c_lflag & ICANON) != 0 && (settings.c_lflag & ECHO) != 0 &&
         (settings.c_iflag & IXON) != 0;
}

// Whether a signal waits to be taken by the process.
bool has_pending_signal(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("ShdPnd:")) return line.find_first_not_of("0\t ", 7) != std::string::npos;
  }
  return false;
}

std::string frame_of(TerminalProcess& terminal) {
  (void)terminal.read_until(kHome);
  std::string frame = terminal.read_until(kEraseBelow);
  // The terminal makes "\r\n" of "\n".
  for (std::size_t at = 0; (at = frame.find("\r\r\n")) != std::string::npos;) frame.erase(at, 1);
  return frame;
}

// Reads until the program has restored the screen, and expects the settings to be the first ones.
void expect_restored(TerminalProcess& terminal) {
  EXPECT_THAT(terminal.read_until(kLeave), HasSubstr(kLeave));
  EXPECT_EQ(terminal.read_rest(), "");
  EXPECT_TRUE(is_usable(terminal.settings()));
}

TEST_F(TopTerminalTest, ATableIsRefreshedUntilQIsPressed) {
  TerminalProcess terminal = start();
  EXPECT_THAT(terminal.read_until(kEnter), HasSubstr(kEnter));
  for (int i = 0; i < 3; ++i) {
    const std::string frame = frame_of(terminal);
    EXPECT_THAT(frame, HasSubstr("GPU  NAME                UUID"));
    EXPECT_THAT(frame, HasSubstr("  0  A rather long name  GPU-a"));
    EXPECT_THAT(frame, Not(HasSubstr("1049")));
  }
  EXPECT_FALSE(is_usable(terminal.settings()));
  terminal.press("xq");
  EXPECT_EQ(terminal.wait(), 0);
  expect_restored(terminal);
}

TEST_F(TopTerminalTest, ControlCLeaves) {
  TerminalProcess terminal = start();
  (void)frame_of(terminal);
  terminal.press("\x03");
  EXPECT_EQ(terminal.wait(), 0);
  expect_restored(terminal);
}

TEST_F(TopTerminalTest, ASignalEndsItOnceTheTerminalIsRestored) {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
    TerminalProcess terminal = start();
    (void)frame_of(terminal);
    terminal.kill(signal);
    EXPECT_EQ(terminal.wait(), -signal);
    expect_restored(terminal);
  }
}

// With an interval that no test outlives, only a signal can bring the next frame.
TEST_F(TopTerminalTest, AKeyOrSignalNeedsNoRefresh) {
  TerminalProcess terminal = start(80, 24, "86400");
  (void)frame_of(terminal);
  terminal.press("Q");
  EXPECT_EQ(terminal.wait(), 0);
  expect_restored(terminal);
}

TEST_F(TopTerminalTest, LinesAreCutAtTheWidthOfTheTerminal) {
  TerminalProcess terminal = start(30, 24, "86400");
  const std::string narrow = frame_of(terminal);
  EXPECT_THAT(narrow, HasSubstr("\r\nGPU  NAME                UUID \r\n"));
  EXPECT_THAT(narrow, HasSubstr("\r\n  0  A rather long name  GPU-a\r\n"));
  terminal.resize(24, 24);
  EXPECT_THAT(frame_of(terminal), HasSubstr("\r\n  0  A rather long name \r\n"));
  terminal.resize(24, 4);
  EXPECT_THAT(terminal.read_until("(2 more lines)"), HasSubstr("(2 more lines)"));
}

TEST_F(TopTerminalTest, AStoppedProgramLeavesAUsableTerminal) {
  TerminalProcess terminal = start();
  (void)frame_of(terminal);
  terminal.press("\x1a");
  ASSERT_TRUE(terminal.stops());
  EXPECT_THAT(terminal.read_rest(), ::testing::EndsWith(kLeave));
  EXPECT_TRUE(is_usable(terminal.settings()));
  terminal.kill(SIGCONT);
  EXPECT_THAT(terminal.read_until(kEnter), HasSubstr(kEnter));
  (void)frame_of(terminal);
  EXPECT_FALSE(is_usable(terminal.settings()));
  terminal.press("q");
  EXPECT_EQ(terminal.wait(), 0);
  expect_restored(terminal);
}

TEST_F(TopTerminalTest, ATerminalThatTakesNoOutputDelaysNoSignal) {
  TerminalProcess terminal = start();
  (void)frame_of(terminal);
  terminal.suspend_output();
  // It has seen a change of size, so it has a frame that the terminal does not take.
  terminal.resize(90, 24);
  ASSERT_TRUE(eventually([&] { return !has_pending_signal(terminal.pid()); }));
  terminal.kill(SIGTERM);
  EXPECT_EQ(terminal.wait(), -SIGTERM);
  EXPECT_TRUE(is_usable(terminal.settings()));
}

TEST_F(TopTerminalTest, ATerminalThatIsGoneEndsIt) {
  TerminalProcess terminal = start();
  (void)frame_of(terminal);
  terminal.disconnect();
  EXPECT_EQ(terminal.wait(), -SIGHUP);
}

TEST_F(TopTerminalTest, ATerminalWithoutACursorIsRefused) {
  setenv("TERM", "dumb", 1);
  TerminalProcess terminal = start();
  EXPECT_THAT(terminal.read_until("use --once"),
              HasSubstr("gantry-top: expected a terminal that moves its cursor, but got TERM=dumb; "
                        "use --once"));
  EXPECT_EQ(terminal.wait(), 2);
}

TEST_F(TopTerminalTest, OnceCutsLinesAndMovesNoCursor) {
  TerminalProcess terminal({GANTRY_TEST_TOP, "--once"}, 30, 24);
  EXPECT_EQ(terminal.wait(), 0);
  const std::string text = terminal.read_rest();
  EXPECT_THAT(text, HasSubstr("\r\n  0  A rather long name  GPU-a\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(TopTerminalTest, CudaStaysUnloaded) {
  TerminalProcess terminal = start();
  (void)frame_of(terminal);
  std::ifstream maps("/proc/" + std::to_string(terminal.pid()) + "/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_THAT(text, HasSubstr("fake_nvml"));
  EXPECT_THAT(text, Not(HasSubstr("libcuda")));
}

}  // namespace
}  // namespace gantry::top
