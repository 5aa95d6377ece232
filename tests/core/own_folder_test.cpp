// Folders of a user alone, on a machine with another user who makes what he can.
#include "core/files/own_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

constexpr uid_t kVictim = 60'001;
constexpr uid_t kOtherUser = 60'002;
constexpr int kSkipped = 77;

// The exit code of a child that runs `body`, as `user`; 1 if it throws or returns a text.
int run_child(uid_t user, const std::function<std::string()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (user != 0 && setresuid(user, user, user) != 0) _exit(kSkipped);
    std::string problem;
    try {
      problem = body();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (problem == "skipped") _exit(kSkipped);
    std::fputs((problem + (problem.empty() ? "" : "\n")).c_str(), stderr);
    _exit(problem.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct Step {
  uid_t user;
  std::function<std::string()> body;
};

// Runs the steps, one after the other, in a child with empty /dev/shm and /run of its own.
void on_shared_machine(bool has_session, const std::vector<Step>& steps) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace and other users";
  const int code = run_child(0, [&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0) return "skipped";
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") != 0 ||
        mount("none", "/run", "tmpfs", 0, "mode=755") != 0) {
      return "skipped";
    }
    if (has_session) {
      const std::string session = "/run/user/" + std::to_string(kVictim);
      if (mkdir("/run/user", 0755) != 0 || mkdir(session.c_str(), 0700) != 0 ||
          chown(session.c_str(), kVictim, kVictim) != 0) {
        return "no session folder";
      }
    }
    for (const Step& step : steps) {
      if (run_child(step.user, step.body) != 0)
        return "user " + std::to_string(step.user) + " failed";
    }
    return {};
  });
  if (code == kSkipped) GTEST_SKIP() << "the system allows no mount namespace";
  EXPECT_EQ(code, 0);
}

const std::string kVictimsFolder = "/dev/shm/gantry-" + std::to_string(kVictim);

std::string expect(bool holds, const std::string& what) { return holds ? "" : what; }

TEST(OwnFolderTest, IsMadeForThisUserAlone) {
  on_shared_machine(false, {{kVictim, []() -> std::string {
                               if (own_folder() != kVictimsFolder) return own_folder();
                               prepare_own_folder();
                               prepare_own_folder();
                               struct stat facts {};
                               if (stat(kVictimsFolder.c_str(), &facts) != 0)
                                 return "there is none";
                               return expect(
                                   facts.st_uid == kVictim && (facts.st_mode & 0777) == 0700,
                                   "it is open");
                             }}});
}

TEST(OwnFolderTest, AFolderOfAnotherUserIsNamedAndNotUsed) {
  for (const bool is_link : {false, true}) {
    on_shared_machine(
        false, {{kOtherUser,
                 [&]() -> std::string {
                   const int made = is_link ? symlink("/dev/shm", kVictimsFolder.c_str())
                                            : mkdir(kVictimsFolder.c_str(), 0777);
                   return expect(made == 0, "not made");
                 }},
                {kVictim, []() -> std::string {
                   try {
                     prepare_own_folder();
                     return "it is used";
                   } catch (const Error& error) {
                     const std::string text = error.what();
                     return expect(
                         text.find("belongs to user 60002; remove it") != std::string::npos, text);
                   }
                 }}});
  }
}

TEST(OwnFolderTest, AFolderThatGroupOrOthersMayUseInAnyWayIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "own").string();
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  std::string failure;
  EXPECT_TRUE(open_own_folder(path, failure)) << failure;
  for (const mode_t bit : {0040, 0020, 0010, 0004, 0002, 0001}) {
    ASSERT_EQ(chmod(path.c_str(), 0700 | bit), 0);
    failure.clear();
    EXPECT_FALSE(open_own_folder(path, failure)) << std::oct << bit;
    EXPECT_EQ(failure, path + " is open to other users") << std::oct << bit;
  }
}

// A user that is not logged in has no session: on batch nodes, in containers.
TEST(OwnFolderTest, AHomeHasTheLastOne) {
  on_shared_machine(
      false,
      {{0,
        []() -> std::string {
          return expect(mkdir("/run/home", 0755) == 0 && chown("/run/home", kVictim, kVictim) == 0,
                        "no home");
        }},
       {kOtherUser,
        []() -> std::string {
          return expect(mkdir(kVictimsFolder.c_str(), 0777) == 0, "not made");
        }},
       {kVictim, []() -> std::string {
          setenv("HOME", "/run/home", 1);
          prepare_own_folder();
          struct stat facts {};
          const bool is_there = stat("/run/home/.cache/gantry/run", &facts) == 0 &&
                                facts.st_uid == kVictim && (facts.st_mode & 0777) == 0700;
          return expect(is_there && own_folder() == "/run/home/.cache/gantry/run", own_folder());
        }}});
}

TEST(OwnFolderTest, ASessionHasAnotherOne) {
  on_shared_machine(
      true,
      {{kOtherUser, [] { return expect(mkdir(kVictimsFolder.c_str(), 0777) == 0, "not made"); }},
       {kVictim, []() -> std::string {
          prepare_own_folder();
          return expect(own_folder() == "/run/user/60001", own_folder());
        }}});
}

// An abstract name that all ranks derive could be bound by a stranger first.
TEST(OwnFolderTest, AnotherUserNeitherTakesNorReachesASocket) {
  const SocketAddress place{.kind = SocketAddress::Kind::unix_path,
                            .name = kVictimsFolder + "/job-torchrun-29500",
                            .port = 0};
  const auto serve = [&]() -> std::string {
    prepare_own_folder();
    if (own_socket_path("job-torchrun-29500") != place.name) return "another path";
    SocketAddress own = place;
    const UniqueFd listener = listen_at(own);
    return expect(connect_to(place, {}).has_value(), "the owner does not reach it");
  };
  const auto is_forbidden = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return std::string(error.what()).find("Permission denied") != std::string::npos;
    }
    return false;
  };
  const auto attack = [&]() -> std::string {
    if (!is_forbidden([&] { (void)connect_to(place, {}); })) return "the stranger may connect";
    SocketAddress other = place;
    other.name += "1";
    return expect(is_forbidden([&] { (void)listen_at(other); }), "the stranger may listen");
  };
  on_shared_machine(false, {{kVictim, serve}, {kOtherUser, attack}, {kVictim, serve}});
}

TEST(OwnFolderTest, SocketNamesSuitAPath) {
  EXPECT_THAT(own_socket_path("job-slurm-77.3"), EndsWith("/job-slurm-77.3"));
  for (const std::string& name :
       {std::string("../x"), std::string("a/b"), std::string(), std::string("."),
        std::string(200, 'x'), std::string("prterun-host-1@1")}) {
    EXPECT_THAT(own_socket_path(name), MatchesRegex(".*/[0-9a-f]{32}")) << name;
    EXPECT_LE(own_socket_path(name).size(), 107u);
  }
  EXPECT_NE(own_socket_path("a/b"), own_socket_path("a/c"));
}

}  // namespace
}  // namespace gantry
