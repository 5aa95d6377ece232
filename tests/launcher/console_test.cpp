// Output of glaunch to readers that are slow or go away.
#include "launcher/run/output/console.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

#include <gantry/extend/unique_fd.hpp>

#include "tests/support/eventually.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::launcher {
namespace {

using testing::eventually;

// A pipe of one page, whose reader decides when there is room.
struct Reader {
  Reader() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
    capacity = static_cast<std::size_t>(fcntl(in.get(), F_SETPIPE_SZ, 4096));
  }
  // True once a writer of more than the pipe holds waits for the reader.
  [[nodiscard]] bool is_waited_for() const {
    return eventually([&] {
      int bytes = 0;
      return ioctl(out.get(), FIONREAD, &bytes) == 0 && static_cast<std::size_t>(bytes) == capacity;
    });
  }
  // As much text, or less if none comes for 15 s.
  [[nodiscard]] std::string take(std::size_t bytes) const {
    std::string text(bytes, '?');
    pollfd entry{out.get(), POLLIN, 0};
    for (std::size_t at = 0; at < bytes;) {
      if (poll(&entry, 1, 15'000) != 1) return text.substr(0, at);
      const ssize_t got = read(out.get(), text.data() + at, bytes - at);
      if (got <= 0) return text.substr(0, at);
      at += static_cast<std::size_t>(got);
    }
    return text;
  }

  UniqueFd out;
  UniqueFd in;
  std::size_t capacity = 0;
};

class ConsoleTest : public ::testing::Test {
 protected:
  // A line of rank 0 without a prefix.
  static void put(Console& console, const std::string& text) { console.write(0, "", text, true); }

  const testing::TemporaryFolder folder_;
  Reader reader_;
};

TEST_F(ConsoleTest, TextStaysInOrderThoughSomeOfItWaitsInAFile) {
  constexpr std::size_t kMemory = 16;
  Console console(reader_.in.get(), folder_.path(), kMemory);
  const std::string held(2 * reader_.capacity, 'a');
  const std::string large(kMemory + 1, 'b');
  for (int round = 0; round < 2; ++round) {
    put(console, held);
    ASSERT_TRUE(reader_.is_waited_for());
    std::string expected = held;
    // Texts that fit into memory and ones that do not, in every order.
    for (const std::string& text : {std::string("c"), large, std::string("d"), std::string("e"),
                                    large, large, std::string(kMemory, 'f'), std::string("g")}) {
      put(console, text);
      expected += text;
    }
    EXPECT_FALSE(console.drained());
    EXPECT_EQ(reader_.take(expected.size()), expected) << "round " << round;
    EXPECT_TRUE(eventually([&] { return console.drained(); }));
    EXPECT_EQ(console.failure(), 0);
  }
}

TEST_F(ConsoleTest, TextThatTheDiskDoesNotTakeIsCountedInItsPlace) {
  Console console(reader_.in.get(), folder_ / "absent", 2 * reader_.capacity);
  const std::string held(2 * reader_.capacity, 'a');
  const auto gap = [](std::size_t bytes) {
    return "\nglaunch: " + std::to_string(bytes) +
           " bytes of output are missing here: the disk is full\n";
  };
  put(console, held);
  ASSERT_TRUE(reader_.is_waited_for());
  put(console, "before\n");
  put(console, held);
  put(console, held + "1");
  put(console, "between\n");
  put(console, "the same line\n");
  put(console, held + "23");
  const std::string expected = held + "before\n" + gap(2 * held.size() + 1) +
                               "between\nthe same line\n" + gap(held.size() + 2);
  EXPECT_EQ(reader_.take(expected.size()), expected);
  put(console, "more\n");
  EXPECT_EQ(reader_.take(5), "more\n");
}

TEST_F(ConsoleTest, AReaderThatGoesAwayIsAFailureAndHoldsNobodyUp) {
  signal(SIGPIPE, SIG_IGN);  // as in the launcher
  Console console(reader_.in.get(), folder_.path(), 16);
  put(console, std::string(2 * reader_.capacity, 'a'));
  ASSERT_TRUE(reader_.is_waited_for());
  put(console, std::string(17, 'b'));
  reader_.out.reset();
  EXPECT_TRUE(eventually([&] { return console.failure() != 0 && console.drained(); }));
  EXPECT_EQ(console.failure(), EPIPE);
  put(console, std::string(1 << 20, 'c'));
  EXPECT_TRUE(console.drained());
}

TEST_F(ConsoleTest, ADescriptorTellsThatEverythingIsWritten) {
  Console console(reader_.in.get(), folder_.path());
  pollfd entry{console.drained_fd(), POLLIN, 0};
  for (int round = 0; round < 2; ++round) {
    put(console, std::string(2 * reader_.capacity, 'a'));
    ASSERT_TRUE(reader_.is_waited_for());
    EXPECT_EQ(poll(&entry, 1, 0), 0);
    EXPECT_EQ(reader_.take(2 * reader_.capacity).size(), 2 * reader_.capacity);
    EXPECT_EQ(poll(&entry, 1, -1), 1);
    EXPECT_TRUE(console.drained());
    console.clear();
  }
}

TEST_F(ConsoleTest, EachLineHasThePrefixOfItsOwner) {
  Console console(reader_.in.get(), folder_.path());
  console.write(0, "[0] ", "one", false);
  console.write(0, "[0] ", " line\n", true);
  console.write(0, "[0] ", "half", false);
  console.write(1, "[1] ", "other\n", true);
  console.write(0, "[0] ", "open", false);
  console.end_line_of(1);
  console.write(0, "[0] ", " still", false);
  console.end_line_of(0);
  console.end_line_of(0);
  console.write(0, "[0] ", "last\n", true);
  const std::string expected = "[0] one line\n[0] half\n[1] other\n[0] open still\n[0] last\n";
  EXPECT_EQ(reader_.take(expected.size()), expected);
}

}  // namespace
}  // namespace gantry::launcher
