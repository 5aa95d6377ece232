// The choice of the platform, each time in a fresh process with an environment of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/machine/visible_devices.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Environment = std::map<std::string, std::optional<std::string>>;

/// What device_probe said.
struct Answer {
  std::vector<std::string> lines;
  std::string all;

  /// The rest of the first line that starts with `key`.
  std::string operator[](const std::string& key) const {
    for (const std::string& line : lines) {
      if (line.starts_with(key + " ")) return line.substr(key.size() + 1);
    }
    return "(no line '" + key + "' in)\n" + all;
  }
  /// All lines that start with `key`, without it.
  std::vector<std::string> every(const std::string& key) const {
    std::vector<std::string> found;
    for (const std::string& line : lines) {
      if (line.starts_with(key + " ")) found.push_back(line.substr(key.size() + 1));
    }
    return found;
  }
};

Answer probe(const std::string& command, Environment changes) {
  Environment environment{{"GANTRY_SIM_DEVICES", std::nullopt},
                          {"CUDA_VISIBLE_DEVICES", std::nullopt},
                          {"CUDA_DEVICE_ORDER", std::nullopt}};
  for (auto& [name, value] : changes) environment[name] = value;
  const testing::Outcome outcome = testing::run_command(
      {.argv = {GANTRY_TEST_PROGRAM_DIR "/device_probe", command}, .environment = environment});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  Answer answer{.lines = {}, .all = outcome.describe()};
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) answer.lines.push_back(line);
  return answer;
}

TEST(PlatformTest, AMalformedVariableIsAnErrorInASingleProcessToo) {
  const std::map<std::string, std::pair<std::string, std::string>> cases{
      {"GANTRY_HOST_LINKS",
       {"upp", "GANTRY_HOST_LINKS: expected auto, nccl, tcp or mpi, but got 'upp'"}},
      {"GANTRY_P2P", {"maybe", "GANTRY_P2P: expected off, on or probe, but got 'maybe'"}},
      {"GANTRY_LOCAL_RANK",
       {"x", "GANTRY_LOCAL_RANK: expected a whole number from 0 to 1048575, but got 'x'"}},
      {"GANTRY_WORLD_SIZE",
       {"0", "GANTRY_WORLD_SIZE: expected a whole number from 1 to 1048576, but got '0'"}},
      {"GANTRY_COLL_TIMEOUT",
       {"soon", "GANTRY_COLL_TIMEOUT: expected a whole number from 1 to 1000000, but got 'soon'"}},
      {"GANTRY_RDZV",
       {"here",
        "GANTRY_RDZV: store address: expected unix:@name, unix:/path or tcp:host:port, but got "
        "'here'"}},
      {"GANTRY_FLIGHT_DIR",
       {"/nowhere",
        "GANTRY_FLIGHT_DIR: expected a directory, but got '/nowhere': No such file or directory"}}};
  for (const auto& [name, value_and_text] : cases) {
    const auto& [value, text] = value_and_text;
    const Answer answer = probe("describe", {{"GANTRY_SIM_DEVICES", "2"}, {name, value}});
    EXPECT_EQ(answer["describe"], "InvalidArgument " + text);
    const Answer unset = probe("describe", {{"GANTRY_SIM_DEVICES", "2"}, {name, ""}});
    EXPECT_EQ(unset["describe"], "ok") << name << " is empty";
  }
  const Answer device =
      probe("describe", {{"GANTRY_SIM_DEVICES", "2"}, {"GANTRY_FLIGHT_DIR", "/dev/null"}});
  EXPECT_EQ(device["describe"],
            "InvalidArgument GANTRY_FLIGHT_DIR: expected a directory, but got '/dev/null': Not a "
            "directory");
}

TEST(PlatformTest, SimulatesAsManyDevicesAsAsked) {
  for (const char* count : {"1", "3", "64"}) {
    const Answer answer = probe("describe", {{"GANTRY_SIM_DEVICES", count}});
    EXPECT_EQ(answer["platform"], "simulated");
    EXPECT_EQ(answer["count"], count);
    EXPECT_EQ(answer["initialized"], "no") << "counting must not initialise";
    EXPECT_EQ(answer.every("device").size(), std::stoul(count));
  }
}

TEST(PlatformTest, EmptySimDevicesCountsAsUnset) {
  const Answer answer = probe("use", {{"GANTRY_SIM_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_THAT(answer["init"], StartsWith("NotSupported"));
}

TEST(PlatformTest, MalformedSimDevicesIsAnErrorThatNamesIt) {
  for (const char* value : {"0", "-1", "65", "four", "4 ", "1.5", "99999999999999999999"}) {
    const Answer answer = probe("describe", {{"GANTRY_SIM_DEVICES", value}});
    EXPECT_EQ(
        answer["describe"],
        "InvalidArgument GANTRY_SIM_DEVICES: expected a whole number from 1 to 64, but got '" +
            std::string(value) + "'");
  }
}

TEST(PlatformTest, WithoutAPlatformEveryUseSaysHowToGetOne) {
  const Environment nothing{{"CUDA_VISIBLE_DEVICES", ""}};
  const Answer seen = probe("describe", nothing);
  EXPECT_EQ(seen["platform"], "none");
  EXPECT_EQ(seen["count"], "0");
  EXPECT_EQ(seen["describe"], "ok");
  const Answer used = probe("use", nothing);
  for (const char* call : {"init", "driver", "current_device", "set_device", "synchronize",
                           "resolved", "guard", "properties"}) {
    EXPECT_THAT(used[call], StartsWith("NotSupported No CUDA device is available and "
                                       "GANTRY_SIM_DEVICES is not set: "));
    EXPECT_THAT(used[call], HasSubstr("set GANTRY_SIM_DEVICES=4 to use simulated devices"));
  }
}

TEST(PlatformTest, SimulationObeysCudaVisibleDevices) {
  const std::vector<std::string> all =
      probe("describe", {{"GANTRY_SIM_DEVICES", "4"}}).every("device");
  ASSERT_EQ(all.size(), 4u);
  const auto visible = [](const std::string& mask) {
    return probe("describe", {{"GANTRY_SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", mask}})
        .every("device");
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(visible("2,0"), (List{all[2], all[0]}));
  EXPECT_EQ(visible("3"), (List{all[3]}));
  EXPECT_EQ(visible("1,9,2"), (List{all[1]}));
  const std::string uuid = all[3].substr(0, all[3].find(' '));
  EXPECT_EQ(visible(uuid), (List{all[3]}));
}

TEST(PlatformTest, SimulationRefusesWhatTheDriverRefuses) {
  const Answer twice =
      probe("describe", {{"GANTRY_SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "0,1,0"}});
  EXPECT_EQ(twice["describe"],
            "InvalidArgument CUDA_VISIBLE_DEVICES: expected every device at most once, but got "
            "'0,1,0'");
  const Answer order =
      probe("describe", {{"GANTRY_SIM_DEVICES", "4"}, {"CUDA_DEVICE_ORDER", "bogus"}});
  EXPECT_EQ(order["describe"],
            "InvalidArgument CUDA_DEVICE_ORDER: expected FASTEST_FIRST or PCI_BUS_ID, but got "
            "'bogus'");
}

TEST(PlatformTest, SimulationWithEverythingHiddenHasNoDevice) {
  const Environment hidden{{"GANTRY_SIM_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", ""}};
  const Answer seen = probe("describe", hidden);
  EXPECT_EQ(seen["platform"], "simulated");
  EXPECT_EQ(seen["count"], "0");
  const Answer used = probe("use", hidden);
  EXPECT_EQ(used["set_device"],
            "NotSupported No device is visible: CUDA_VISIBLE_DEVICES='' hides every simulated "
            "device");
}

// Strings whose outcome depends on the rules of the driver, not on the machine's UUIDs.
TEST(PlatformTest, DriverAgreesWithTheParser) {
  GANTRY_REQUIRE_CUDA();
  std::vector<DeviceIdentity> all;
  for (const std::string& line : probe("describe", {}).every("device")) {
    const auto space = line.find(' ');
    all.push_back({.uuid = line.substr(0, space), .pci_bus_id = line.substr(space + 1)});
  }
  ASSERT_FALSE(all.empty());
  const std::string uuid = all.back().uuid;
  for (const std::string& mask :
       {std::string("0"), std::string("-1"), std::string("0,0"), std::string("0,99"),
        std::string(" 0"), std::string("+0"), std::string("0x1"), std::string(",0"),
        std::string("0,,1"), std::string("all"), uuid, uuid.substr(0, 12), uuid + ",0",
        uuid + "," + uuid, "0," + uuid, uuid.substr(4)}) {
    const VisibleDevices parsed = parse_visible_devices(mask, all);
    std::vector<std::string> expected;
    for (const int i : parsed.visible) expected.push_back(all[static_cast<std::size_t>(i)].uuid);
    std::vector<std::string> seen;
    for (const std::string& line :
         probe("describe", {{"CUDA_VISIBLE_DEVICES", mask}}).every("device")) {
      seen.push_back(line.substr(0, line.find(' ')));
    }
    EXPECT_EQ(seen, expected) << "CUDA_VISIBLE_DEVICES='" << mask << "'";
  }
}

TEST(PlatformTest, SimulationOverridesRealGpus) {
  GANTRY_REQUIRE_CUDA();
  EXPECT_EQ(probe("describe", {{"GANTRY_SIM_DEVICES", "2"}})["platform"], "simulated");
  EXPECT_EQ(probe("describe", {})["platform"], "cuda");
}

TEST(PlatformTest, CountingRealGpusInitialisesNothing) {
  GANTRY_REQUIRE_CUDA();
  EXPECT_EQ(probe("describe", {})["initialized"], "no");
}

}  // namespace
}  // namespace gantry
