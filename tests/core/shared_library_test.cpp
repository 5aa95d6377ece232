// Libraries that are loaded at run time: the C library's own serve as examples.
#include "core/files/loaded_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr const char* kAbsent = "libgantry_absent.so.1";
const std::string kAbsentProblem =
    "failed to load libgantry_absent.so.1: cannot open shared object file: No such file or "
    "directory";

std::string error_of(const SharedLibrary& library, std::string_view operation) {
  try {
    library.require(operation);
  } catch (const NotSupported& error) {
    return error.what();
  }
  return "no error";
}

TEST(SharedLibraryTest, TheFirstCandidateThatLoadsIsUsed) {
  const SharedLibrary library({kAbsent, "libm.so.6", "libc.so.6"});
  EXPECT_EQ(library.problem(), "");
  EXPECT_EQ(error_of(library, "cos"), "no error");
  EXPECT_THAT(library.path(), EndsWith("/libm.so.6"));
  double (*cosine)(double) = nullptr;
  EXPECT_TRUE(library.find(cosine, "cos"));
  EXPECT_EQ(cosine(0), 1);
  EXPECT_FALSE(library.find(cosine, "gantry_absent"));
  EXPECT_EQ(cosine, nullptr);
}

TEST(SharedLibraryTest, AnAbsentLibraryNamesEveryCandidateAndTheRemedy) {
  const SharedLibrary library({kAbsent, "/no/such/libother.so"}, "install it");
  EXPECT_EQ(library.problem(),
            kAbsentProblem + ", /no/such/libother.so: No such file or directory; install it");
  EXPECT_EQ(error_of(library, "gemm"), "gemm: " + library.problem());
  EXPECT_EQ(library.find("cos"), nullptr);
  EXPECT_EQ(library.path(), "");
  EXPECT_EQ(SharedLibrary({kAbsent}).problem(), kAbsentProblem);
}

TEST(SharedLibraryTest, ALibraryWithoutAFunctionCannotBeUsed) {
  SharedLibrary library({"libm.so.6"}, "install a newer one");
  double (*function)(double) = nullptr;
  library.bind(function, "cos");
  EXPECT_EQ(library.problem(), "");
  library.bind(function, "gantry_absent");
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(library.problem(), "failed to load libm.so.6: " + library.path() +
                                   " lacks gantry_absent; install a newer one");
  EXPECT_EQ(error_of(library, "cos"), "cos: " + library.problem());
}

struct Cosine : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  double (*cosine)(double) = bind("cos");
  double (*other)(double) = bind("sin");
};

TEST(LoadedLibraryTest, ItsFunctionsAreThereOrAreRefused) {
  const LoadedLibrary<Cosine> math(SharedLibrary({"libm.so.6"}));
  EXPECT_EQ(math.problem(), "");
  EXPECT_EQ(math.require("gemm").cosine(0), 1);
  EXPECT_EQ(math.functions().other(0), 0);

  const LoadedLibrary<Cosine> absent(SharedLibrary({kAbsent}, "install it"));
  EXPECT_EQ(absent.problem(), kAbsentProblem + "; install it");
  EXPECT_EQ(absent.functions().cosine, nullptr);
  try {
    static_cast<void>(absent.require("gemm"));
    ADD_FAILURE();
  } catch (const NotSupported& error) {
    EXPECT_EQ(error.what(), "gemm: " + absent.problem());
  }
}

TEST(SharedLibraryTest, TheFirstProblemIsKept) {
  SharedLibrary library({"libm.so.6"});
  library.reject("expected version 3, but got 2");
  library.reject("another problem");
  EXPECT_EQ(library.problem(), "failed to load libm.so.6: expected version 3, but got 2");
}

TEST(SharedLibraryTest, AFileThatIsNoLibraryIsNoCandidate) {
  std::string name = (std::filesystem::temp_directory_path() / "library-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  const std::string text = folder / "libtext.so";
  std::ofstream(text) << "no ELF";
  EXPECT_THAT(SharedLibrary({text}).problem(),
              StartsWith("failed to load " + text + ": file too short"));
  // The loader itself would wait for a writer.
  const std::string pipe = folder / "libpipe.so";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(SharedLibrary({pipe}).problem(), "failed to load " + pipe + ": a named pipe");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gantry
