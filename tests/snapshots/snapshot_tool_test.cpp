// How save_snapshot finds and runs gantry-snapshot, in programs with habits of their own.
#include "snapshots/snapshot_tool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/snapshots/snapshot_samples.hpp"
#include "tests/support/descriptor_limit.hpp"

namespace gantry::memory {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr const char* kVariable = "GANTRY_SNAPSHOT_TOOL";

// A value of an environment variable, while it lives.
class EnvironmentValue {
 public:
  EnvironmentValue(const char* name, const std::optional<std::string>& value)
      : name_(name), old_(env::get(name)) {
    set(value);
  }
  ~EnvironmentValue() { set(old_); }
  EnvironmentValue(const EnvironmentValue&) = delete;
  EnvironmentValue& operator=(const EnvironmentValue&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> old_;
};

// An action of a signal, while it lives.
class SignalAction {
 public:
  SignalAction(int number, void (*handler)(int)) : number_(number) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(number, &action, &old_);
  }
  ~SignalAction() { sigaction(number_, &old_, nullptr); }
  SignalAction(const SignalAction&) = delete;
  SignalAction& operator=(const SignalAction&) = delete;

 private:
  int number_;
  struct sigaction old_ {};
};

class SnapshotToolTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(output()); }

  /// The folder that only saved files may be in.
  [[nodiscard]] fs::path output() const { return folder_ / "output"; }
  [[nodiscard]] std::vector<std::string> saved() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(output())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  /// A shell script with the tool's name.
  fs::path make_tool(const fs::path& folder, const std::string& commands) {
    fs::create_directories(folder);
    const fs::path path = folder / "gantry-snapshot";
    std::ofstream(path) << "#!/bin/sh\n" << commands << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  /// Saves `snapshot` with the real tool and checks what it wrote.
  void save_page(const std::string& name = "x.html") {
    save_snapshot(testing::awkward_snapshot(), output() / name);
    const std::string page = testing::content_of(output() / name);
    EXPECT_THAT(page, StartsWith("<!doctype html>"));
    EXPECT_THAT(page, EndsWith("</html>\n"));
    EXPECT_THAT(page, HasSubstr("</script>\n<script type=\"text/plain\" id=\"numbers\">"));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SnapshotToolTest, WritesAPageAndAPickle) {
  save_page();
  save_snapshot(output() / "now.html");
  save_snapshot(testing::awkward_snapshot(), output() / "x.pickle");
  const std::string pickle = testing::content_of(output() / "x.pickle");
  EXPECT_THAT(pickle, StartsWith("\x80\x02}("));
  EXPECT_EQ(pickle.back(), '.');
  EXPECT_THAT(saved(), ::testing::UnorderedElementsAre("x.html", "now.html", "x.pickle"));
}

TEST_F(SnapshotToolTest, TakesAnyFileName) {
  for (const char* name : {"-o.html", "--.html", "ä b\n\"'$(touch x).html"}) save_page(name);
  const fs::path old = fs::current_path();
  fs::current_path(output());
  save_snapshot(testing::awkward_snapshot(), "-relative.html");
  fs::current_path(old);
  EXPECT_THAT(saved(), ::testing::SizeIs(4));
}

TEST_F(SnapshotToolTest, ReplacesAFileAtOnceAndKeepsALink) {
  save_page("first.html");
  fs::create_symlink("first.html", output() / "x.html");
  std::ofstream(output() / "first.html", std::ios::trunc) << "older";
  save_page("x.html");
  EXPECT_TRUE(fs::is_symlink(output() / "x.html"));
  EXPECT_THAT(testing::content_of(output() / "first.html"), StartsWith("<!doctype html>"));
}

TEST_F(SnapshotToolTest, LooksInThreePlaces) {
  const fs::path named = make_tool(folder_ / "named", "true");
  const fs::path in_bin = make_tool(folder_ / "bin", "true");
  const fs::path library = folder_ / "lib" / "libgantry.so";
  const fs::path in_path = make_tool(folder_ / "second", "true");
  fs::create_directories(folder_ / "first" / "gantry-snapshot");  // a folder is no program
  const EnvironmentValue path(
      "PATH", ":" + (folder_ / "first").string() + ":" + (folder_ / "second").string());
  {
    const EnvironmentValue variable(kVariable, named.string());
    EXPECT_EQ(find_snapshot_tool(library), named);
  }
  const EnvironmentValue variable(kVariable, std::nullopt);
  EXPECT_EQ(find_snapshot_tool(library), in_bin);
  EXPECT_EQ(find_snapshot_tool(folder_ / "a" / "b" / "c" / "program"), in_path);
  EXPECT_EQ(find_snapshot_tool({}), in_path);
  fs::permissions(in_bin, fs::perms::owner_read);
  if (geteuid() != 0 || access(in_bin.c_str(), X_OK) != 0) {
    EXPECT_EQ(find_snapshot_tool(library), in_path);
  }
  const EnvironmentValue empty(kVariable, "");
  EXPECT_EQ(find_snapshot_tool({}), in_path);
}

TEST_F(SnapshotToolTest, LooksBesideTheFileWithGantry) {
  const EnvironmentValue variable(kVariable, std::nullopt);
  const EnvironmentValue path("PATH", "");
  const fs::path tool = make_tool(folder_ / "bin", "true");
  for (const char* file : {"lib/libgantry.so", "lib64/libgantry.so.1", "bin/program",
                           "lib/x86_64-linux-gnu/libgantry.so", "tests/bin/program"}) {
    EXPECT_EQ(find_snapshot_tool(folder_ / file), tool) << file;
  }
  EXPECT_TRUE(fs::is_regular_file(gantry_file())) << gantry_file();
  EXPECT_TRUE(fs::is_regular_file(find_snapshot_tool()));  // of the build tree
}

TEST_F(SnapshotToolTest, KnowsItsFileInAnyFolder) {
  const fs::path file = gantry_file();
  const fs::path old = fs::current_path();
  fs::current_path(output());
  EXPECT_EQ(gantry_file(), file);
  fs::current_path(old);
}

// /tmp/bin is no place to take programs from, although it is ../bin of /tmp/lib.
TEST_F(SnapshotToolTest, LeavesOutProgramsOfOtherUsers) {
  const EnvironmentValue variable(kVariable, std::nullopt);
  const EnvironmentValue path("PATH", "");
  const fs::path tool = make_tool(folder_ / "bin", "true");
  const fs::path library = folder_ / "lib" / "libgantry.so";
  fs::create_directory(library.parent_path());
  std::ofstream(library) << "";
  constexpr uid_t kOtherUser = 12345;
  if (chown(tool.c_str(), kOtherUser, gid_t(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_THROW(static_cast<void>(find_snapshot_tool(library)), Error);
  ASSERT_EQ(chown(library.c_str(), kOtherUser, gid_t(-1)), 0);
  EXPECT_EQ(find_snapshot_tool(library), tool) << "both are of one owner";
}

TEST_F(SnapshotToolTest, SaysWhatIsMissing) {
  const EnvironmentValue path("PATH", (folder_ / "empty").string());
  {
    const EnvironmentValue variable(kVariable, std::nullopt);
    EXPECT_THAT([&] { static_cast<void>(find_snapshot_tool("/no/lib/libgantry.so")); },
                ThrowsMessage<Error>(
                    "the program gantry-snapshot is neither beside '/no/lib/libgantry.so' nor in "
                    "PATH; install gantry's programs or set GANTRY_SNAPSHOT_TOOL to its path, or "
                    "save a .json file, which needs no program"));
  }
  for (const std::string bad : {"/none/tool", "/", "/etc/passwd"}) {
    const EnvironmentValue variable(kVariable, bad);
    EXPECT_THAT([&] { save_snapshot(output() / "x.pickle"); },
                ThrowsMessage<Error>(HasSubstr("x.pickle': GANTRY_SNAPSHOT_TOOL: expected an "
                                               "executable file, but got '" +
                                               bad + "'")));
    save_snapshot(output() / "x.json");
  }
  EXPECT_THAT(saved(), ElementsAre("x.json"));
}

TEST_F(SnapshotToolTest, LooksBeforeTheSnapshotIsTaken) {
  if (device_count() == 0) GTEST_SKIP() << "needs a device";
  record_history({.clear = true});
  {
    const EnvironmentValue variable(kVariable, "/none/tool");
    EXPECT_THROW(save_snapshot(output() / "x.html"), Error);
  }
  EXPECT_THAT(snapshot().device_traces.at(0), ::testing::SizeIs(1));
  record_history({.enabled = false});
}

// Each tool fails in its own way; none leaves a file, and the text says how.
TEST_F(SnapshotToolTest, FailuresOfTheToolAreErrors) {
  const struct {
    const char* commands;
    const char* text;
  } cases[] = {
      {"echo 'no such thing' >&2; exit 2", "': no such thing"},
      {"printf 'a\\033[2Jb\\n'; exit 1", "': a\\x1b[2Jb"},
      {"echo not written; exit 0", "': not written"},
      {"exit 3", "ended with exit code 3 and without a message"},
      {"exit 0", "ended with exit code 0 and without a message"},
      {"kill -KILL $$", "ended by signal 9"},
  };
  for (const auto& [commands, text] : cases) {
    const EnvironmentValue variable(kVariable, make_tool(folder_ / "bad", commands).string());
    EXPECT_THAT([&] { save_snapshot(output() / "x.html"); },
                ThrowsMessage<Error>(AllOf(
                    StartsWith("save_snapshot: failed to write '" + (output() / "x.html").string()),
                    HasSubstr(text), Not(HasSubstr("\x1b")))))
        << commands;
    EXPECT_THAT(saved(), IsEmpty()) << commands;
  }
  const fs::path no_program = folder_ / "bad" / "gantry-snapshot";
  std::ofstream(no_program) << "#!/no/interpreter\n";
  const EnvironmentValue variable(kVariable, no_program.string());
  EXPECT_THAT([&] { save_snapshot(output() / "x.html"); },
              ThrowsMessage<Error>(HasSubstr("gantry-snapshot': No such file or directory")));
  EXPECT_THAT(saved(), IsEmpty());
}

TEST_F(SnapshotToolTest, KeepsTheOldFileWhereTheToolFails) {
  save_page();
  const std::string before = testing::content_of(output() / "x.html");
  const EnvironmentValue variable(kVariable, make_tool(folder_ / "bad", "exit 1").string());
  EXPECT_THROW(save_snapshot(output() / "x.html"), Error);
  EXPECT_EQ(testing::content_of(output() / "x.html"), before);
}

TEST_F(SnapshotToolTest, WorksWhereOthersReapItsChild) {
  {
    const SignalAction ignored(SIGCHLD, SIG_IGN);
    save_page();
    const EnvironmentValue variable(kVariable, make_tool(folder_ / "bad", "exit 1").string());
    EXPECT_THAT([&] { save_snapshot(output() / "y.html"); },
                ThrowsMessage<Error>(HasSubstr("ended without a message")));
  }
  static std::atomic<int> reaped{0};
  const SignalAction handler(SIGCHLD, [](int) {
    const int kept = errno;
    while (waitpid(-1, nullptr, WNOHANG) > 0) ++reaped;
    errno = kept;
  });
  for (int i = 0; i < 10; ++i) save_page();
}

TEST_F(SnapshotToolTest, TheToolHasItsOwnSignals) {
  const EnvironmentValue variable(
      kVariable, make_tool(folder_ / "shown",
                           "cat > /dev/null; echo \"wrote it\"; "
                           "grep '^Sig[BI]' /proc/self/status > \"${2#--output=}\"")
                     .string());
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  {
    const SignalAction ignored(SIGTERM, SIG_IGN);
    save_snapshot(testing::awkward_snapshot(), output() / "x.html");
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  // The system's library ignores signals 32 and 33 in what it starts.
  EXPECT_THAT(testing::content_of(output() / "x.html"),
              ::testing::MatchesRegex("SigBlk:\t0+\nSigIgn:\t0+[01]?[08]0000000\n"));
}

// Runs `body` in a forked child; its bits say what failed.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int failed = 128;
    try {
      failed = body();
    } catch (...) {
    }
    _exit(failed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(SnapshotToolTest, WorksWithoutStandardStreams) {
  for (int closed = 1; closed < 8; ++closed) {
    const auto save = [&] {
      for (int fd = 0; fd < 3; ++fd) {
        if ((closed >> fd & 1) != 0) close(fd);
      }
      save_snapshot(testing::awkward_snapshot(), output() / "x.html");
      return 0;
    };
    EXPECT_EQ(in_child(save), 0) << closed;
    EXPECT_THAT(testing::content_of(output() / "x.html"), EndsWith("</html>\n")) << closed;
    fs::remove(output() / "x.html");
  }
}

TEST_F(SnapshotToolTest, AForkedChildSavesOnlyWhatItHas) {
  if (device_count() == 0) GTEST_SKIP() << "needs a device";
  static_cast<void>(snapshot());
  EXPECT_EQ(in_child([&] {
              save_snapshot(testing::awkward_snapshot(), output() / "x.html");
              try {
                save_snapshot(output() / "y.html");
              } catch (const ForkError&) {
                return 0;
              }
              return 1;
            }),
            0);
  EXPECT_THAT(saved(), ElementsAre("x.html"));
}

TEST_F(SnapshotToolTest, WithoutDescriptorsItSaysSo) {
  int failed = 0;
  bool worked = false;
  for (int free = 0; free < 8 && !worked; ++free) {
    std::string error;
    {
      const gantry::testing::DescriptorLimit limit(free);
      try {
        save_snapshot(testing::awkward_snapshot(), output() / "x.html");
        worked = true;
      } catch (const Error& caught) {
        error = caught.what();
      }
    }
    if (worked) break;
    ++failed;
    EXPECT_THAT(error, EndsWith("x.html': Too many open files")) << free;
    EXPECT_THAT(saved(), IsEmpty()) << free;
  }
  EXPECT_GT(failed, 2);
  EXPECT_TRUE(worked);
}

TEST_F(SnapshotToolTest, ThreadsMaySaveTheSameFile) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&] { EXPECT_NO_THROW(save_snapshot(testing::awkward_snapshot(), output() / "x.html")); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(testing::content_of(output() / "x.html"), EndsWith("</html>\n"));
  EXPECT_THAT(saved(), ElementsAre("x.html"));
}

// The JSON has no name while the tool reads it, so nothing is left if the program is killed.
TEST_F(SnapshotToolTest, AProgramThatIsKilledLeavesNoFile) {
  const EnvironmentValue variable(
      kVariable, make_tool(folder_ / "slow", "kill -KILL $PPID; sleep 0.1").string());
  EXPECT_EQ(in_child([&] {
              save_snapshot(testing::awkward_snapshot(), output() / "x.html");
              return 0;
            }),
            -SIGKILL);
  EXPECT_THAT(saved(), IsEmpty());
}

}  // namespace
}  // namespace gantry::memory
