// The files of jit::elementwise: who may write them, and what happens to those that do not count.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>

#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResult = "result 10000 ";
constexpr const char* kCompiled = "result 10000 compiled 1 loaded 0 refused 0\n";
constexpr const char* kLoaded = "result 10000 compiled 0 loaded 1 refused 0\n";
constexpr const char* kRefused = "result 10000 compiled 1 loaded 0 refused 1\n";

class JitCacheTest : public ::testing::Test {
 protected:
  [[nodiscard]] Command command() const {
    Command result{
        .argv = {GANTRY_TEST_PROGRAM_DIR "/jit_worker", device_count() > 0 ? "cuda:0" : "cpu"}};
    result.environment["GANTRY_JIT_CACHE"] = cache_.string();
    result.environment["TMPDIR"] = temporary_.string();
    return result;
  }
  Outcome run(const std::map<std::string, std::optional<std::string>>& changes = {}) const {
    Command changed = command();
    for (const auto& [name, value] : changes) changed.environment[name] = value;
    return run_command(changed);
  }
  // The one file of the cache, after a first run.
  fs::path compiled_file() const {
    const Outcome outcome = run();
    EXPECT_EQ(outcome.out, kCompiled) << outcome.describe();
    const std::vector<fs::path> files = files_in(cache_);
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }
  static std::vector<fs::path> files_in(const fs::path& path) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
    return files;
  }
  // The file is not used, and one warning says why. The next run finds a good one.
  void expect_refused(const std::string& reason) const {
    const Outcome first = run();
    EXPECT_EQ(first.out, kRefused) << first.describe();
    const std::size_t told = first.err.find(reason);
    EXPECT_NE(told, std::string::npos) << reason << "\n" << first.describe();
    EXPECT_EQ(first.err.find("is not used", first.err.find("is not used") + 1), std::string::npos)
        << first.describe();
    const Outcome second = run();
    EXPECT_EQ(second.out, kLoaded) << second.describe();
    EXPECT_EQ(second.err, "") << second.describe();
  }

  TemporaryFolder folder_;
  const fs::path cache_ = folder_ / "cache";
  const fs::path temporary_ = [this] {
    fs::create_directory(folder_ / "tmp");
    return folder_ / "tmp";
  }();
};

TEST_F(JitCacheTest, TheSecondProcessCompilesNothing) {
  const fs::path file = compiled_file();
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  ASSERT_EQ(stat(cache_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  const Outcome second = run();
  EXPECT_EQ(second.out, kLoaded) << second.describe();
  EXPECT_TRUE(fs::is_empty(temporary_));
}

TEST_F(JitCacheTest, DamagedFilesAreRefused) {
  const fs::path file = compiled_file();
  const std::string good = content_of(file);
  const auto damage = [&](const std::string& content) {
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << content;
    chmod(file.c_str(), 0600);
  };
  damage("");
  expect_refused("it is damaged");
  damage(good.substr(0, 40));
  expect_refused("it is damaged");
  damage(good.substr(0, good.size() - 1));
  expect_refused("its content is not what its head says");
  damage(good + "x");
  expect_refused("its content is not what its head says");
  std::string changed = good;
  changed[good.size() / 2] ^= 1;
  damage(changed);
  expect_refused("its content is not what its head says");
  // A good file of another program under this name.
  std::string foreign = good;
  foreign[20] = foreign[20] == 'a' ? 'b' : 'a';
  damage(foreign);
  expect_refused("its content is not what its head says");
}

TEST_F(JitCacheTest, FilesThatOthersMayWriteAreRefused) {
  const fs::path file = compiled_file();
  ASSERT_EQ(chmod(file.c_str(), 0620), 0);
  expect_refused("its mode 620 lets others write it");
  ASSERT_EQ(chmod(file.c_str(), 0606), 0);
  expect_refused("its mode 606 lets others write it");
}

TEST_F(JitCacheTest, FilesOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, which gives files away";
  const fs::path file = compiled_file();
  ASSERT_EQ(chown(file.c_str(), 12345, 12345), 0);
  expect_refused("it belongs to user 12345");
}

TEST_F(JitCacheTest, LinksPipesAndFoldersAreRefused) {
  const fs::path file = compiled_file();
  const fs::path elsewhere = folder_ / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  expect_refused("it is a symbolic link");
  EXPECT_FALSE(fs::is_symlink(file));
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_refused("it is no regular file");
  fs::remove(file);
  fs::create_directory(file);
  const Outcome outcome = run();  // which cannot be replaced
  EXPECT_EQ(outcome.out, kRefused) << outcome.describe();
  EXPECT_NE(outcome.err.find("it is no regular file"), std::string::npos) << outcome.describe();
  EXPECT_EQ(files_in(cache_).size(), 1U);
}

TEST_F(JitCacheTest, FoldersThatOthersMayWriteAreNotUsed) {
  const fs::path file = compiled_file();
  ASSERT_EQ(chmod(cache_.c_str(), 0770), 0);
  const Outcome open = run();
  EXPECT_EQ(open.out, kCompiled) << open.describe();
  EXPECT_NE(open.err.find("is not used: its mode 770 lets others write it"), std::string::npos)
      << open.describe();
  ASSERT_EQ(chmod(cache_.c_str(), 0700), 0);
  const fs::path real = folder_ / "real";
  fs::rename(cache_, real);
  fs::create_symlink(real, cache_);
  const Outcome linked = run();
  EXPECT_EQ(linked.out, kCompiled) << linked.describe();
  EXPECT_NE(linked.err.find("is not used"), std::string::npos) << linked.describe();
  if (geteuid() == 0) {
    fs::remove(cache_);
    fs::rename(real, cache_);
    ASSERT_EQ(chown(cache_.c_str(), 12345, 12345), 0);
    const Outcome foreign = run();
    EXPECT_EQ(foreign.out, kCompiled) << foreign.describe();
    EXPECT_NE(foreign.err.find("it belongs to user 12345"), std::string::npos)
        << foreign.describe();
  }
}

TEST_F(JitCacheTest, TheFolderIsChosenByTheEnvironment) {
  const fs::path home = folder_ / "home";
  fs::create_directory(home);
  const std::optional<std::string> none;
  EXPECT_EQ(run({{"GANTRY_JIT_CACHE", ""}, {"HOME", home.string()}}).out, kCompiled);
  EXPECT_FALSE(fs::exists(home / ".cache"));  // CUDA has a folder of its own
  EXPECT_EQ(
      run({{"GANTRY_JIT_CACHE", none}, {"XDG_CACHE_HOME", none}, {"HOME", home.string()}}).out,
      kCompiled);
  EXPECT_EQ(files_in(home / ".cache/gantry/jit").size(), 1U);
  const fs::path other = folder_ / "other";
  EXPECT_EQ(run({{"GANTRY_JIT_CACHE", none}, {"XDG_CACHE_HOME", other.string()}}).out, kCompiled);
  EXPECT_EQ(files_in(other / "gantry/jit").size(), 1U);
}

TEST_F(JitCacheTest, ProcessesShareTheFolder) {
  std::vector<std::unique_ptr<Subprocess>> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(std::make_unique<Subprocess>(command()));
  for (const auto& worker : workers) {
    const Outcome outcome = worker->wait();
    EXPECT_TRUE(outcome.out == kCompiled || outcome.out == kLoaded) << outcome.describe();
    EXPECT_EQ(outcome.err, "") << outcome.describe();
  }
  EXPECT_EQ(files_in(cache_).size(), 1U);
  EXPECT_EQ(run().out, kLoaded);
}

// The system's compiler serves the CPU and simulated devices.
class JitCompilerTest : public JitCacheTest {
 protected:
  void SetUp() override {
    if (platform() == Platform::cuda) GTEST_SKIP() << "GPUs take NVRTC";
  }
  // A program for CXX.
  [[nodiscard]] std::string script(const std::string& text) const {
    const fs::path path = folder_ / "compiler";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0700);
    return path.string();
  }
};

TEST_F(JitCompilerTest, WithoutACompilerTheErrorNamesWhatWasLookedFor) {
  const Outcome none = run({{"CXX", std::nullopt}, {"PATH", "/nowhere"}});
  EXPECT_EQ(none.exit_code, 3) << none.describe();
  EXPECT_NE(none.out.find("NotSupported jit::elementwise: failed to find a C++ compiler: CXX is "
                          "unset, and PATH has no c++, g++ or clang++"),
            std::string::npos)
      << none.describe();
  const Outcome wrong = run({{"CXX", "no-such-compiler -O2"}});
  EXPECT_EQ(wrong.exit_code, 3) << wrong.describe();
  EXPECT_NE(wrong.out.find("CXX is 'no-such-compiler', which is no program"), std::string::npos)
      << wrong.describe();
}

TEST_F(JitCompilerTest, CxxMayHaveArguments) {
  EXPECT_EQ(run({{"CXX", "env c++"}}).out, kCompiled);
  // Another command makes another program.
  EXPECT_EQ(run({{"CXX", "env c++ -O1"}}).out, kCompiled);
  EXPECT_EQ(run({{"CXX", "env c++"}}).out, kLoaded);
}

TEST_F(JitCompilerTest, ACompilerThatMakesNothingIsAnError) {
  const Outcome silent = run({{"CXX", script("exit 1")}});
  EXPECT_EQ(silent.exit_code, 4) << silent.describe();
  EXPECT_NE(silent.out.find("the compiler wrote no message"), std::string::npos);
  const Outcome noisy = run({{"CXX", script("printf 'my \\033[31mfault\\n' >&2; exit 1")}});
  EXPECT_NE(noisy.out.find("my \\x1b[31mfault"), std::string::npos) << noisy.describe();
  const Outcome killed = run({{"CXX", script("kill -9 $$")}});
  EXPECT_EQ(killed.exit_code, 4) << killed.describe();
  const Outcome garbage = run({{"CXX", script("echo garbage > program.so")}});
  EXPECT_NE(garbage.out.find("failed to load the compiled program"), std::string::npos)
      << garbage.describe();
  EXPECT_TRUE(fs::is_empty(temporary_));
  EXPECT_FALSE(fs::exists(cache_));
  EXPECT_EQ(run().out, kCompiled);
}

// Another user who may rename the folder puts a program of his own into its place.
TEST_F(JitCompilerTest, TheProgramComesFromTheFolderThatWasMade) {
  const std::string cxx = script(
      "here=$PWD\nmv \"$here\" \"$here.away\" && mkdir \"$here\" && echo garbage > "
      "\"$here/program.so\" && exec c++ \"$@\"");
  const Outcome outcome = run({{"CXX", cxx}});
  EXPECT_EQ(outcome.out, kCompiled) << outcome.describe();
}

TEST_F(JitCompilerTest, AFolderThatOthersMayRenameIsRefused) {
  const auto expect_refusal = [&](const std::string& problem) {
    const Outcome outcome = run({{"GANTRY_JIT_CACHE", ""}});
    EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
    EXPECT_NE(outcome.out.find("jit::elementwise: failed to make a folder in '" +
                               temporary_.string() + "': "),
              std::string::npos)
        << outcome.describe();
    EXPECT_NE(outcome.out.find(problem + "; set TMPDIR to another folder"), std::string::npos)
        << outcome.describe();
    EXPECT_TRUE(fs::is_empty(temporary_));
  };
  ASSERT_EQ(chmod(temporary_.c_str(), 0777), 0);
  expect_refusal("(mode 777)");
  ASSERT_EQ(chmod(temporary_.c_str(), 01777), 0);
  EXPECT_EQ(run({{"GANTRY_JIT_CACHE", ""}}).out, kCompiled);
  ASSERT_EQ(chmod(temporary_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  expect_refusal("(mode 777)");
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  if (chown(temporary_.c_str(), 12345, gid_t(-1)) != 0) return;  // only root gives folders away
  expect_refusal("belongs to user 12345");
}

TEST_F(JitCompilerTest, RelativeCompilersAreNotRun) {
  static_cast<void>(script("exec c++ \"$@\""));
  Command changed = command();
  changed.environment["CXX"] = "./compiler";
  changed.argv.insert(changed.argv.begin(),
                      {"sh", "-c", "cd '" + folder_.path().string() + "' && exec \"$@\"", "sh"});
  const Outcome outcome = run_command(changed);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.describe();
  EXPECT_NE(outcome.out.find("failed to use the C++ compiler './compiler': expected an absolute "
                             "path; set CXX to another compiler"),
            std::string::npos)
      << outcome.describe();
}

TEST_F(JitCompilerTest, TheCompilerGetsNoStandardInputAndNoPreload) {
  const std::string cxx =
      script("[ -z \"$LD_PRELOAD\" ] && [ \"$LC_ALL\" = C ] && ! read line && exec c++ \"$@\"");
  EXPECT_EQ(run({{"CXX", cxx}, {"LC_ALL", "de_DE.UTF-8"}}).out, kCompiled);
}

}  // namespace
}  // namespace gantry::testing
