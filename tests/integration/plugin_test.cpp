#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_command;

constexpr std::string_view kPython = GANTRY_TEST_PYTHON;
constexpr std::string_view kPlugin = GANTRY_TEST_PLUGIN;

constexpr std::string_view kLibrary = GANTRY_TEST_LIBRARY;

#define GANTRY_REQUIRE_SHARED_LIBRARY() \
  if (kLibrary.find(".so") == kLibrary.npos) GTEST_SKIP() << "gantry is an archive in this build"

template <class Record>
Record read_at(std::ifstream& file, std::uint64_t offset) {
  Record record{};
  file.seekg(static_cast<std::streamoff>(offset));
  if (!file.read(reinterpret_cast<char*>(&record), sizeof record)) {
    throw std::runtime_error("the file is shorter than its headers say");
  }
  return record;
}

struct ThreadMemory {
  std::uint64_t bytes = 0;    ///< of each thread
  bool is_static = false;     ///< must fit into what the loader keeps for late libraries
  bool stays_loaded = false;  ///< dlclose does not unmap it
};

ThreadMemory thread_memory_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  ThreadMemory result;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto part = read_at<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (part.p_type == PT_TLS) result.bytes += part.p_memsz;
    if (part.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = 0; at < part.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = read_at<Elf64_Dyn>(file, part.p_offset + at);
      if (entry.d_tag == DT_NULL) break;
      const std::uint64_t flags = entry.d_un.d_val;
      if (entry.d_tag == DT_FLAGS) result.is_static = (flags & DF_STATIC_TLS) != 0;
      if (entry.d_tag == DT_FLAGS_1) result.stays_loaded = (flags & DF_1_NODELETE) != 0;
    }
  }
  return result;
}

// Nothing that enlarges the loader's reserve may be set.
std::map<std::string, std::optional<std::string>> plain_environment() {
  return {{"GLIBC_TUNABLES", std::nullopt}, {"LD_PRELOAD", std::nullopt}};
}

// glibc keeps 512 bytes for the static thread-local memory of all libraries that are loaded late.
TEST(PluginTest, TheLibraryNeedsLittleThreadLocalMemory) {
  GANTRY_REQUIRE_SHARED_LIBRARY();
  const ThreadMemory memory = thread_memory_of(std::string(kLibrary));
  EXPECT_GT(memory.bytes, 0U);
  EXPECT_LE(memory.bytes, 448U);  // hot paths make all of it static; some is left for others
}

// Threads of gantry run its code until the process ends.
TEST(PluginTest, TheLibraryStaysLoaded) {
  GANTRY_REQUIRE_SHARED_LIBRARY();
  EXPECT_TRUE(thread_memory_of(std::string(kLibrary)).stays_loaded);
}

TEST(PluginTest, AProgramThatDoesNotLinkGantryLoadsAPlugin) {
  GANTRY_REQUIRE_DEVICES(1);
  const Outcome outcome =
      run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/plugin_host", std::string(kPlugin)},
                   .environment = plain_environment()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("unloaded"));
}

TEST(PluginTest, AProgramThatDoesNotLinkGantryLoadsTheLibraryFirst) {
  GANTRY_REQUIRE_DEVICES(1);
  GANTRY_REQUIRE_SHARED_LIBRARY();
  const Outcome outcome = run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/plugin_host",
                                                std::string(kLibrary), std::string(kPlugin)},
                                       .environment = plain_environment()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST(PluginTest, PythonLoadsLibraryAndPlugin) {
  if (kPython.empty()) GTEST_SKIP() << "Python 3 was not found";
  if (GANTRY_TEST_SANITIZED != 0) {
    GTEST_SKIP() << "a sanitizer's runtime cannot be loaded by a Python that was built without it";
  }
  GANTRY_REQUIRE_DEVICES(1);
  std::vector<std::string> argv{std::string(kPython), "-c",
                                "import ctypes, sys\n"
                                "libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]\n"
                                "plugin = libraries[-1]\n"
                                "ranks = min(plugin.plugin_device_count(), 2)\n"
                                "sys.exit(plugin.plugin_all_reduce(ranks) if ranks else 3)\n"};
  if (kLibrary.find(".so") != kLibrary.npos) argv.emplace_back(kLibrary);
  argv.emplace_back(kPlugin);
  const Outcome outcome = run_command({.argv = argv, .environment = plain_environment()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

}  // namespace
}  // namespace gantry
