// An algorithm choice that an operation ignores is logged once, with its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/flight_folder.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using ::testing::HasSubstr;
using ::testing::Not;

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (std::size_t at = text.find(phrase); at != std::string::npos;
       at = text.find(phrase, at + 1)) {
    ++count;
  }
  return count;
}

class IgnoredChoiceTest : public testing::LocalGroupTest {
 protected:
  void SetUp() override {
    LocalGroupTest::SetUp();
    GANTRY_REQUIRE_SIM();
    GANTRY_REQUIRE_DEVICES(3);
  }
  void TearDown() override {
    unsetenv("GANTRY_COLL_TABLE");
    LocalGroupTest::TearDown();
  }
  // What is written while every operation of a group runs, several times.
  static std::string lines_of_a_group(const char* algorithm, int ranks = 3) {
    if (algorithm != nullptr) setenv("GANTRY_COLL_ALGO", algorithm, 1);
    ::testing::internal::CaptureStderr();
    for (int round = 0; round < 2; ++round) {
      on_ranks(ranks, [](CollectiveSuite& suite, Communicator&) {
        suite.all(f32, 1000);
        suite.all(i32, 40'000);
      });
    }
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(IgnoredChoiceTest, WithoutNcclEveryOperationOfAGroupWarns) {
  const std::string lines = lines_of_a_group("nccl");
  for (const char* operation :
       {"barrier", "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather",
        "scatter", "all_to_all", "send", "recv"}) {
    const std::string phrase = std::string("GANTRY_COLL_ALGO=nccl: ") + operation + " goes by ";
    EXPECT_EQ(count_of(lines, phrase), 1) << operation << "\n" << lines;
  }
  EXPECT_THAT(lines, HasSubstr(": it needs real GPUs"));
}

TEST_F(IgnoredChoiceTest, AnAlgorithmThatDoesOnlySomeOperationsNamesTheOthers) {
  const std::string lines = lines_of_a_group("two_shot");
  for (const char* operation : {"barrier", "all_gather", "reduce_scatter", "gather", "scatter",
                                "all_to_all", "send", "recv"}) {
    const std::string phrase = std::string("GANTRY_COLL_ALGO=two_shot: ") + operation + " goes by ";
    EXPECT_EQ(count_of(lines, phrase), 1) << operation << "\n" << lines;
  }
  EXPECT_THAT(lines, Not(HasSubstr("two_shot: broadcast")));
  EXPECT_THAT(lines, HasSubstr("it does not do this operation"));
  // Two ranks have no middle.
  EXPECT_THAT(lines_of_a_group("two_shot", 2), HasSubstr("two_shot: all_reduce goes by "));
}

TEST_F(IgnoredChoiceTest, SizesAndMemoryAreReasonsToo) {
  EXPECT_THAT(lines_of_a_group("ll"), HasSubstr("GANTRY_COLL_ALGO=ll: all_reduce goes by "));
  const std::string lines = lines_of_a_group("zero_copy");
  EXPECT_THAT(lines, HasSubstr("GANTRY_COLL_ALGO=zero_copy: all_reduce goes by "));
  EXPECT_THAT(lines, HasSubstr("the tensor is not registered (register_memory())"));
}

TEST_F(IgnoredChoiceTest, NoWarningWithoutAnOverride) {
  EXPECT_EQ(lines_of_a_group(nullptr), "");
  EXPECT_EQ(lines_of_a_group("one_shot"), "");
  EXPECT_EQ(lines_of_a_group("host"), "");
}

TEST_F(IgnoredChoiceTest, ARowOfTheUsersTableThatCannotServeIsNamed) {
  const testing::FlightFolder folder;
  const std::string path = folder.path() + "/table.json";
  std::ofstream(path) << R"({"device": "*", "ranks": 2, "tables": {
    "all_reduce": [{"algorithm": "nccl", "blocks": 1}],
    "reduce": [{"up_to_bytes": 1000000, "algorithm": "ll", "blocks": 4},
               {"algorithm": "one_shot", "blocks": 16}]}})";
  setenv("GANTRY_COLL_TABLE", path.c_str(), 1);
  const std::string lines = lines_of_a_group(nullptr);
  EXPECT_EQ(count_of(lines, "GANTRY_COLL_TABLE=nccl: all_reduce goes by one_shot: it needs real"),
            1)
      << lines;
  EXPECT_EQ(count_of(lines, "GANTRY_COLL_TABLE=ll: reduce goes by one_shot: 160000 bytes are more"),
            1)
      << lines;
}

TEST_F(IgnoredChoiceTest, OperationsInsideOneProcessSayItToo) {
  for (const std::string algorithm : {"nccl", "two_shot"}) {
    setenv("GANTRY_COLL_ALGO", algorithm.c_str(), 1);
    ::testing::internal::CaptureStderr();
    const std::vector<Device> two = devices(2);
    for (int round = 0; round < 2; ++round) {
      std::vector<Tensor> inputs;
      for (const Device device : two) inputs.push_back(ones({8}, {.device = device}));
      (void)comm::broadcast(inputs[0], two);
      (void)comm::reduce_add(inputs, two[0]);
      std::vector<Tensor> parts = comm::scatter(inputs[0], two);
      (void)comm::gather(parts, {.destination = two[0]});
      comm::all_reduce(inputs);
      std::vector<Tensor> outputs;
      for (const Device device : two) outputs.push_back(zeros({16}, {.device = device}));
      comm::all_gather(outputs, inputs);
      comm::all_to_all(inputs,
                       parts = {ones({8}, {.device = two[0]}), ones({8}, {.device = two[1]})});
      comm::reduce_scatter(inputs, outputs);
    }
    const std::string lines = ::testing::internal::GetCapturedStderr();
    for (const char* operation : {"broadcast", "reduce_add", "scatter", "gather", "all_reduce",
                                  "all_gather", "all_to_all", "reduce_scatter"}) {
      const std::string phrase =
          "GANTRY_COLL_ALGO=" + algorithm + ": comm::" + operation + " goes by p2p: ";
      EXPECT_EQ(count_of(lines, phrase), 1) << operation << "\n" << lines;
    }
  }
}

}  // namespace
}  // namespace gantry
