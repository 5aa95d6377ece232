// Programs that start in a folder of somebody else, which is full of files with the right names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::Command;
using testing::content_of;
using testing::Outcome;
using testing::run_command;

constexpr const char* kTools[] = {"glaunch",         "gantry-bench",        "gantry-replay",
                                  "gantry-snapshot", "gantry-top",          "gantry-trace",
                                  "gantry-tune",     "gantry-check-devices"};
// Libraries that are loaded at run time. A decoy of one that a program links would end it at once.
constexpr const char* kLibraries[] = {
    GANTRY_TEST_MPI_MODULE, "libgantry_mpi.so",  "libmpi.so.40",      "libcuda.so.1",
    "libnccl.so.2",         "libnvidia-ml.so.1", "libcupti.so.13",    "libnvrtc.so.13",
    "libcublas.so.13",      "libcublasLt.so.13", "libnvToolsExt.so.1"};
constexpr const char* kPrograms[] = {
    "gantry-snapshot", "gantry-check-devices", "c++", "g++", "clang++", "srun", "mpirun"};

class DecoysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"current", "bin", "broken"}) fs::create_directory(folder_ / folder);
    for (const char* name : kLibraries) {
      fs::copy_file(GANTRY_TEST_DECOY, current() / name);
    }
    // argv[0] names a tool, which is then looked for here.
    for (const char* name : kTools) std::ofstream(current() / name) << "";
    for (const char* name : kPrograms) {
      std::ofstream(current() / name) << "#!/bin/sh\necho $0 >> $GANTRY_TEST_DECOY_MARK\n";
      fs::permissions(current() / name, fs::perms::owner_all);
    }
    // The loader finds a module of MPI that cannot be loaded, and no other one.
    std::ofstream(folder_ / "broken" / GANTRY_TEST_MPI_MODULE) << "no ELF";
  }

  [[nodiscard]] fs::path current() const { return folder_ / "current"; }
  [[nodiscard]] std::string marks() const { return content_of(folder_ / "mark"); }

  // Starts `line` by a bare name in the folder of decoys, as a rank of an MPI job.
  Outcome run(const fs::path& tools, const std::string& line) const {
    Command command{.argv = {"/bin/sh", "-c",
                             "cd '" + current().string() + "' && exec " + line + " < /dev/null"}};
    command.environment = {
        {"PATH", tools.string() + ":.:" +
                     fs::path(GANTRY_TEST_CHECK_DEVICES).parent_path().string() + ":/usr/bin:/bin"},
        {"LD_LIBRARY_PATH", (folder_ / "broken").string()},
        {"GANTRY_TEST_DECOY_MARK", (folder_ / "mark").string()},
        {"GANTRY_SIM_DEVICES", "2"},
        {"GANTRY_HOST_LINKS", "mpi"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_NODE_RANK", "0"},
        {"OMPI_UNIVERSE_SIZE", "2"}};
    return run_command(command);
  }

  // The program itself was found, and loaded with what it links.
  static void expect_start(const Outcome& outcome) {
    EXPECT_NE(outcome.exit_code, 127) << outcome.describe();
    EXPECT_EQ(outcome.signal, 0) << outcome.describe();
  }

  testing::TemporaryFolder folder_;
};

// Every program that is installed, those added later among them. The folder of a build has
// benchmarks, too.
std::vector<fs::path> installed_programs() {
  std::vector<fs::path> programs{GANTRY_TEST_CHECK_DEVICES};
  for (const auto& entry : fs::directory_iterator(fs::path(GANTRY_TEST_GLAUNCH).parent_path())) {
    struct stat status {};
    const std::string name = entry.path().filename();
    if (name != "glaunch" && !name.starts_with("gantry-")) continue;
    if (entry.is_regular_file() && stat(entry.path().c_str(), &status) == 0 &&
        (status.st_mode & S_IXUSR) != 0) {
      programs.push_back(entry.path());
    }
  }
  return programs;
}

TEST_F(DecoysTest, TheDecoysLeaveMarks) {
  EXPECT_EQ(run("/usr/bin", "./g++").exit_code, 0);
  EXPECT_THAT(marks(), ::testing::HasSubstr("g++"));
  run("/usr/bin", "env LD_PRELOAD=./libcuda.so.1 true");
  EXPECT_THAT(marks(), ::testing::HasSubstr("libcuda.so.1"));
}

TEST_F(DecoysTest, NoInstalledProgramTakesThem) {
  const std::vector<fs::path> programs = installed_programs();
  EXPECT_GE(programs.size(), std::size(kTools));
  for (const fs::path& program : programs) {
    const std::string name = program.filename();
    for (const char* arguments : {" --version", " --help", "", " topo"}) {
      expect_start(run(program.parent_path(), name + arguments));
      EXPECT_EQ(marks(), "") << name << arguments;
    }
  }
}

// As if somebody had copied the tools alone: nothing is where they expect it.
TEST_F(DecoysTest, NoCopyOfAProgramTakesThem) {
  for (const fs::path& program : installed_programs()) {
    fs::copy_file(program, folder_ / "bin" / program.filename());
  }
  for (const char* line :
       {"gantry-bench", "gantry-tune", "gantry-top --once", "glaunch check", "glaunch check --full",
        "glaunch -n 2 true", "glaunch topo", "glaunch --hosts a:1,b:1 true",
        "gantry-replay -w rmm:1000,1", "gantry-check-devices", "gantry-trace x.json",
        "gantry-snapshot x.json -o x.html"}) {
    expect_start(run(folder_ / "bin", line));
    EXPECT_EQ(marks(), "") << line;
  }
}

}  // namespace
}  // namespace gantry
