#include "core/stacks/call_site_symbols.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gantry::stacks {
namespace {

using ::testing::ElementsAre;

// The functions at one address, innermost first, with their files.
std::vector<bool> internal(CodeOwner owner,
                           const std::vector<std::pair<std::string, std::string>>& functions) {
  std::vector<NamedFrame> frames;
  for (const auto& [symbol, file] : functions) {
    frames.push_back({{file, file.empty() ? 0 : 7, demangled(symbol.c_str())}, symbol});
  }
  mark_internal(frames, owner);
  std::vector<bool> result;
  for (const NamedFrame& function : frames) result.push_back(function.frame.is_internal);
  return result;
}

constexpr auto kZeros = "_ZN6gantry5zerosERKNS_5ShapeE";
constexpr auto kItem = "_ZNK6gantry6Tensor4itemIfEET_v";
constexpr auto kInvoke = "_ZSt13__invoke_implIvPFvvEJEET_St14__invoke_otherOT0_DpOT1_";
constexpr auto kLambdaOfMain = "_ZZ4mainENKUlvE_clEv";
constexpr auto kOwnGantry = "_ZN6gantry5model7forwardEv";

TEST(CallSiteSymbolsTest, NamesOfTheCxxLibraryAreKnown) {
  for (const char* symbol :
       {"_ZNSt6vectorIiSaIiEE9push_backERKi", "_ZNKSt8functionIFvvEEclEv", kInvoke,
        "_ZNSs6appendEPKc", "_ZNSaIcEC1Ev", "_ZN9__gnu_cxx13new_allocatorIcE8allocateEmPKv",
        "_ZZNSt8functionIFvvEEC1IvEEvENKUlvE_clEv", "_ZNOSt8optionalIiE5valueEv"}) {
    EXPECT_TRUE(is_in_cxx_library(symbol)) << symbol;
  }
  for (const char* symbol : {kZeros, kLambdaOfMain, "main", "_Z4workSt6vectorIiSaIiEE",
                             "_ZN5stage3runEv", "", "_Z", "_ZN", "_ZS", "St4move"}) {
    EXPECT_FALSE(is_in_cxx_library(symbol)) << symbol;
  }
}

TEST(CallSiteSymbolsTest, NamespacesAreScopesNotPrefixes) {
  EXPECT_TRUE(is_in_namespace(kZeros, "gantry"));
  EXPECT_TRUE(is_in_namespace(kItem, "gantry"));
  EXPECT_TRUE(is_in_namespace("_ZN6gantry6memory5statsENS_6DeviceE", "gantry::memory"));
  EXPECT_FALSE(is_in_namespace(kZeros, "gantry::memory"));
  EXPECT_FALSE(is_in_namespace("_ZN7gantry25zerosEv", "gantry"));
  EXPECT_FALSE(is_in_namespace("_Z4workN6gantry6TensorE", "gantry"));
  EXPECT_FALSE(is_in_namespace("make", "gantry"));
}

TEST(CallSiteSymbolsTest, AllCodeOfGantrysLibrariesIsInternal) {
  // A function without a scope in its name: of an unnamed namespace, and inlined.
  EXPECT_THAT(internal(CodeOwner::gantry,
                       {{"make", "tensor/factories.cpp"}, {kZeros, "tensor/factories.cpp"}}),
              ElementsAre(true, true));
  EXPECT_THAT(internal(CodeOwner::gantry, {{"", ""}}), ElementsAre(true));
}

TEST(CallSiteSymbolsTest, HeadersOfGantryAndOfTheCxxLibraryAreInternalInAProgram) {
  EXPECT_THAT(internal(CodeOwner::program, {{kItem, "/opt/include/gantry/tensor/tensor.hpp"},
                                            {kInvoke, "/usr/include/c++/12/bits/invoke.h"},
                                            {"make", "model.cpp"},
                                            {kLambdaOfMain, "main.cpp"}}),
              ElementsAre(true, true, false, false));
  // Without debug information only names tell.
  EXPECT_THAT(internal(CodeOwner::program, {{kItem, ""}}), ElementsAre(true));
  EXPECT_THAT(internal(CodeOwner::program, {{"main", ""}}), ElementsAre(false));
}

TEST(CallSiteSymbolsTest, InlinedFunctionsWithoutALinkersNameAreKnownByTheirFolders) {
  EXPECT_THAT(internal(CodeOwner::program,
                       {{"run_loop<float>", "include/gantry/kernels/launch.hpp"},
                        {"parallel_for<float>", "/opt/include/gantry/kernels/launch.hpp"},
                        {"__invoke_impl", "/usr/include/c++/12/bits/invoke.h"},
                        {"step", "model.cpp"},
                        {"apply", "/home/me/include/gantry_model/layers.hpp"},
                        {"main", "main.cpp"}}),
              ElementsAre(true, true, true, false, false, false));
}

TEST(CallSiteSymbolsTest, AProgramsAdditionsToTheNamespaceAreItsOwn) {
  EXPECT_THAT(internal(CodeOwner::program, {{kOwnGantry, "model.cpp"}}), ElementsAre(false));
}

TEST(CallSiteSymbolsTest, NamesDecideWhereGantryIsLinkedStatically) {
  EXPECT_THAT(internal(CodeOwner::unknown,
                       {{"make", "tensor/factories.cpp"}, {kZeros, "tensor/factories.cpp"}}),
              ElementsAre(true, true));
  EXPECT_THAT(internal(CodeOwner::unknown, {{kItem, "include/gantry/tensor/tensor.hpp"},
                                            {"make", "model.cpp"},
                                            {"main", "main.cpp"}}),
              ElementsAre(true, false, false));
  // The program's function in a template of gantry's headers.
  EXPECT_THAT(internal(CodeOwner::unknown,
                       {{kLambdaOfMain, "main.cpp"}, {kItem, "include/gantry/tensor/tensor.hpp"}}),
              ElementsAre(false, true));
}

}  // namespace
}  // namespace gantry::stacks
