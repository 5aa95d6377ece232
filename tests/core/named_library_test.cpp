#include "core/files/named_library.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

TEST(NamedLibraryTest, FindsFunctionsAndSaysWhyThereIsNone) {
  const NamedLibrary library("libm.so.6");
  EXPECT_EQ(library.problem(), "");
  std::string problem;
  const auto cosine = library.find<double (*)(double)>("cos", problem);
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(library.find<void (*)()>("gantry_absent", problem), nullptr);
  EXPECT_THAT(problem, HasSubstr("gantry_absent"));
}

TEST(NamedLibraryTest, SaysWhyAFileCannotBeLoaded) {
  const testing::TemporaryFolder folder;
  std::string problem;
  EXPECT_EQ(NamedLibrary("/no/such/library.so").problem(), "No such file or directory");
  EXPECT_THAT(NamedLibrary("libgantry_absent.so.1").problem(), HasSubstr("libgantry_absent.so.1"));
  std::ofstream(folder.path() / "text.so") << "no library";
  const NamedLibrary text(folder.path() / "text.so");
  EXPECT_THAT(text.problem(), HasSubstr("text.so"));
  EXPECT_EQ(text.find<void (*)()>("cos", problem), nullptr);
  EXPECT_EQ(problem, text.problem());
}

TEST(NamedLibraryTest, IsUnloadedWithItsLastUser) {
  constexpr const char* kName = "libBrokenLocale.so.1";  // of the C library; nothing else loads it
  const auto is_loaded = [] {
    void* const handle = ::dlopen(kName, RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
  };
  if (is_loaded()) GTEST_SKIP() << kName << " is loaded already";
  {
    const NamedLibrary library(kName);
    if (!library.problem().empty()) GTEST_SKIP() << library.problem();
    EXPECT_TRUE(is_loaded());
  }
  EXPECT_FALSE(is_loaded());
}

}  // namespace
}  // namespace gantry
