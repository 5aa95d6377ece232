// The launcher's wait for descriptors and a deadline.
#include "launcher/run/events/event_loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <gantry/extend/unique_fd.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry::launcher {
namespace {

using namespace std::chrono_literals;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  void put(const std::string& text) const {
    EXPECT_EQ(write(in.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] std::string take() const {
    std::array<char, 4096> bytes{};
    const ssize_t got = read(out.get(), bytes.data(), bytes.size());
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }

  UniqueFd out;
  UniqueFd in;
};

// A deadline that no test waits for.
Clock::time_point far() { return Clock::now() + 1h; }

TEST(EventLoopTest, TheHandlerOfAReadableDescriptorIsCalled) {
  const Pipe quiet;
  const Pipe ready;
  EventLoop loop;
  std::string got;
  EXPECT_TRUE(loop.watch_input(quiet.out.get(), [] { ADD_FAILURE() << "nothing to read"; }));
  EXPECT_TRUE(loop.watch_input(ready.out.get(), [&] { got += ready.take(); }));
  ready.put("a");
  loop.wait(far());
  EXPECT_EQ(got, "a");
  ready.put("b");
  loop.wait({});
  EXPECT_EQ(got, "ab");
}

TEST(EventLoopTest, AHangUpCallsTheHandler) {
  Pipe pipe;
  EventLoop loop;
  int calls = 0;
  EXPECT_TRUE(loop.watch_input(pipe.out.get(), [&] { ++calls; }));
  pipe.in.reset();
  loop.wait(far());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(pipe.take(), "");
}

TEST(EventLoopTest, AFullPipeIsWrittenToOnceItIsRead) {
  const Pipe pipe;
  EventLoop loop;
  const std::string much(std::size_t{1} << 20, 'x');
  ASSERT_LT(write(pipe.in.get(), much.data(), much.size()), static_cast<ssize_t>(much.size()));
  int calls = 0;
  EXPECT_TRUE(loop.watch_output(pipe.in.get(), [&] { ++calls; }));
  loop.wait(Clock::now());
  EXPECT_EQ(calls, 0);
  while (!pipe.take().empty()) {
  }
  loop.wait(far());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, ADeadlineEndsTheWait) {
  const Pipe pipe;
  EventLoop loop;
  EXPECT_TRUE(loop.watch_input(pipe.out.get(), [] { ADD_FAILURE() << "nothing to read"; }));
  loop.wait(Clock::now() - 1s);
  const Clock::time_point end = Clock::now() + 20ms;
  loop.wait(end);
  EXPECT_GE(Clock::now(), end);
}

TEST(EventLoopTest, AFileThatIsAlwaysReadyIsNotWatched) {
  const testing::TemporaryFolder folder;
  const UniqueFd file(open((folder / "file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  EventLoop loop;
  EXPECT_FALSE(loop.watch_input(file.get(), [] { ADD_FAILURE() << "is not watched"; }));
  loop.forget(file.get());
  loop.wait(Clock::now());
}

TEST(EventLoopTest, AForgottenDescriptorCallsNothing) {
  const Pipe pipe;
  EventLoop loop;
  EXPECT_TRUE(loop.watch_input(pipe.out.get(), [] { ADD_FAILURE() << "forgotten"; }));
  pipe.put("a");
  loop.forget(pipe.out.get());
  loop.forget(pipe.out.get());
  loop.wait(Clock::now());
}

TEST(EventLoopTest, ASecondWatchReplacesTheHandler) {
  const Pipe pipe;
  EventLoop loop;
  int calls = 0;
  EXPECT_TRUE(loop.watch_input(pipe.out.get(), [] { ADD_FAILURE() << "replaced"; }));
  EXPECT_TRUE(loop.watch_input(pipe.out.get(), [&] { ++calls; }));
  pipe.put("a");
  loop.wait(far());
  EXPECT_EQ(calls, 1);
}

// Both are ready in one wait. The first handler forgets the other descriptor, whose number may be
// another file's by then.
TEST(EventLoopTest, AHandlerMayForgetItselfAndOthers) {
  const Pipe first;
  const Pipe second;
  EventLoop loop;
  int calls = 0;
  const auto forget_both = [&] {
    ++calls;
    loop.forget(first.out.get());
    loop.forget(second.out.get());
  };
  EXPECT_TRUE(loop.watch_input(first.out.get(), forget_both));
  EXPECT_TRUE(loop.watch_input(second.out.get(), forget_both));
  first.put("a");
  second.put("b");
  loop.wait(far());
  EXPECT_EQ(calls, 1);
  loop.wait(Clock::now());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, ABadDescriptorIsAnError) {
  EventLoop loop;
  EXPECT_THROW(loop.watch_input(-1, [] {}), std::system_error);
}

}  // namespace
}  // namespace gantry::launcher
