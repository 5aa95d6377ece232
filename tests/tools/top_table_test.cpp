#include "tools/top/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/support/expect_error.hpp"
#include "tools/top/columns.hpp"
#include "tools/top/options.hpp"
#include "tools/top/sample_json.hpp"
#include "tools/top/terminal.hpp"

namespace gantry::top {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A machine that the fake NVML shows.
class TopDevicesTest : public ::testing::Test {
 protected:
  ~TopDevicesTest() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_FACTS");
  }
  static Sample machine(const std::string& devices, const std::string& facts = "",
                        bool has_names = true) {
    setenv("FAKE_NVML", devices.c_str(), 1);
    setenv("FAKE_NVML_FACTS", facts.c_str(), 1);
    Sample sample;
    sample.devices = read_devices(machine::Nvml(GANTRY_TEST_FAKE_NVML), has_names, sample.notes);
    return sample;
  }
};

RankState rank_on(int rank, const std::string& uuid) {
  RankState state;
  state.rank = rank;
  state.pid = 100 + rank;
  state.state = "alive";
  state.is_alive = true;
  state.device_name = "H200";
  state.uuid = uuid;
  state.reserved_bytes = 1 << 20;
  return state;
}

TEST_F(TopDevicesTest, ShowWhatNvmlTells) {
  const Sample sample =
      machine("NVIDIA H200,GPU-5c1f3a2b-0000,00000000:1B:00.0;NVIDIA H200,GPU-b,00000000:1C:00.0",
              "0 utilization 97 40;0 memory 151397597184 1073741824 65712672768;0 temperature 54;"
              "0 power 512400;0 clocks 1 1980 2;0 processes 17 65498251264 18 0xffffffffffffffff;"
              "pid17 name /usr/bin/train;1 processes");
  ASSERT_THAT(sample.devices, SizeIs(2));
  EXPECT_THAT(sample.notes, IsEmpty());
  const std::vector<std::string> lines = table_lines(sample);
  EXPECT_THAT(
      lines,
      ElementsAre(HasSubstr(": 2 devices, 0 jobs"), "",
                  "GPU  NAME         UUID          UTIL      MEMORY  TEMP  POWER    CLOCK  "
                  "PROCESSES",
                  "  0  NVIDIA H200  GPU-5c1f3a2b   97%  61.2G/141G   54C   512W  1980MHz  "
                  "17 train 61.0G, 18",
                  "  1  NVIDIA H200  GPU-b            -           -     -      -        -  none"));
  const Json json = sample_json(sample);
  EXPECT_EQ(json.at("schema"), 1);
  const Json& device = json.at("devices").at(0);
  EXPECT_EQ(device.at("index"), "0");
  EXPECT_EQ(device.at("uuid"), "GPU-5c1f3a2b-0000");
  EXPECT_EQ(device.at("utilization_percent"), 97);
  EXPECT_EQ(device.at("memory_usage_percent"), 40);
  EXPECT_EQ(device.at("memory_used_bytes"), 65712672768);
  EXPECT_EQ(device.at("memory_total_bytes"), 151397597184);
  EXPECT_EQ(device.at("temperature_celsius"), 54);
  EXPECT_EQ(device.at("power_milliwatts"), 512400);
  EXPECT_EQ(device.at("clock_mhz"), 1980);
  EXPECT_EQ(device.at("processes").at(0).dump(),
            R"({"pid":17,"name":"train","used_bytes":65498251264})");
  EXPECT_EQ(device.at("processes").at(1).dump(), R"({"pid":18,"name":null,"used_bytes":null})");
  const Json& unknown = json.at("devices").at(1);
  for (const char* key : {"utilization_percent", "memory_used_bytes", "memory_total_bytes",
                          "temperature_celsius", "power_milliwatts", "clock_mhz"}) {
    EXPECT_TRUE(unknown.at(key).is_null()) << key;
  }
}

TEST_F(TopDevicesTest, NamesOfTheHostsProcessesStayAwayFromAContainer) {
  const Sample sample = machine("H200,GPU-a,0", "0 processes 17 1024;pid17 name init", false);
  EXPECT_THAT(table_lines(sample), Contains(HasSubstr("  17 1.0K")));
}

TEST_F(TopDevicesTest, InstancesStandInPlaceOfTheirGpu) {
  const Sample sample = machine("A100,GPU-a,0;A100,GPU-b,1,MIG-x,MIG-y",
                                "1 temperature 44;1/1 memory 80 70 10;1 utilization 9 9");
  ASSERT_THAT(sample.devices, SizeIs(3));
  EXPECT_EQ(sample.devices[1].index, "1/0");
  const DeviceState& instance = sample.devices[2];
  EXPECT_EQ(instance.index, "1/1");
  EXPECT_EQ(instance.uuid, "MIG-y");
  EXPECT_EQ(instance.used_bytes, 10U);
  EXPECT_EQ(instance.temperature, 44U);
  EXPECT_EQ(instance.utilization, std::nullopt);
}

TEST_F(TopDevicesTest, AGpuThatCannotBeUsedIsANote) {
  const Sample sample = machine("forbidden,GPU-a,0;H200,GPU-b,1");
  ASSERT_THAT(sample.devices, SizeIs(1));
  EXPECT_EQ(sample.devices[0].index, "1");
  EXPECT_THAT(sample.notes, ElementsAre("GPU 0 is not shown: No Permission"));
}

TEST_F(TopDevicesTest, WithoutNvmlTheReasonIsANote) {
  std::vector<std::string> notes;
  EXPECT_THAT(read_devices(machine::Nvml("/nowhere/libnvidia-ml.so.1"), true, notes), IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("no GPU is shown: failed to load /nowhere/")));
}

TEST_F(TopDevicesTest, RanksFindTheirDeviceByItsUuid) {
  Sample sample = machine("H200,GPU-a,0;H200,GPU-b,1", "1 memory 80 70 10");
  JobState job;
  // GPU-z is not one that NVML shows, and the last two are simulated.
  for (const char* uuid : {"GPU-b", "GPU-z", "GPU-51a051a0-0000-4000-8000-00000000000b",
                           "GPU-51a051a0-0000-4000-8000-00000000000b", ""}) {
    job.ranks.push_back(rank_on(static_cast<int>(job.ranks.size()), uuid));
  }
  RankState ended = rank_on(5, "GPU-y");
  ended.is_alive = false;
  job.ranks.push_back(ended);
  sample.jobs.push_back(job);
  join_ranks_to_devices(sample);
  const std::vector<RankState>& ranks = sample.jobs[0].ranks;
  EXPECT_EQ(ranks[0].device_index, "1");
  EXPECT_EQ(ranks[1].device_index, std::nullopt);
  EXPECT_EQ(ranks[2].device_index, "11");
  EXPECT_EQ(ranks[4].device_index, std::nullopt);
  // What NVML shows keeps its figures.
  ASSERT_THAT(sample.devices, SizeIs(4));
  EXPECT_EQ(sample.devices[1].used_bytes, 10U);
  EXPECT_EQ(sample.devices[2].uuid, "GPU-51a051a0-0000-4000-8000-00000000000b");
  EXPECT_TRUE(sample.devices[2].is_simulated);
  EXPECT_EQ(sample.devices[2].used_bytes, 2U << 20);
  EXPECT_EQ(sample.devices[3].uuid, "GPU-z");
  EXPECT_EQ(sample.devices[3].name, "H200");
  EXPECT_FALSE(sample.devices[3].is_simulated);
  EXPECT_EQ(sample.devices[3].total_bytes, std::nullopt);
}

TEST(TopTableTest, ShowsRanksWithTheirCalls) {
  Sample sample;
  sample.time_ns = 130'000'000'000;
  JobState job;
  job.job = "train-7";
  job.created_ns = 10'000'000'000;
  RankState rank = rank_on(0, "GPU-5c1f3a2b-0000");
  rank.device_index = "3";
  rank.allocated_bytes = 3 << 19;
  rank.call = CallState{.group = "world",
                        .number = 41,
                        .text = "all_reduce sum f32[1000]",
                        .algorithm = "ring",
                        .bytes = 4000,
                        .age_ns = 3'200'000'000,
                        .is_under_way = true};
  job.ranks.push_back(rank);
  rank = rank_on(1, "GPU-5c1f3a2b-0001");
  rank.reserved_bytes.reset();
  rank.state = "stopped";
  rank.call = CallState{.group = "world.2", .number = 1, .text = "barrier", .algorithm = "ll"};
  job.ranks.push_back(rank);
  rank.rank = 2;
  rank.call.reset();
  job.ranks.push_back(rank);
  sample.jobs.push_back(job);
  sample.notes.push_back("a note");
  EXPECT_THAT(
      table_lines(sample),
      ElementsAre(
          HasSubstr(": 0 devices, 1 job"), "", "job train-7: 3 rank(s), begun 2 min ago",
          "RANK  PID           GPU  STATE    ALLOC  RESERVED  SINCE  CALL",
          "   0  100             3  alive     1.5M      1.0M  3.2 s  in #41 all_reduce sum "
          "f32[1000] by ring",
          "   1  101  GPU-5c1f3a2b  stopped      -         -   0 ms  last #1 barrier of world.2 by "
          "ll",
          "   2  101  GPU-5c1f3a2b  stopped      -         -      -  -", "", "a note"));
  const Json ranks = sample_json(sample).at("jobs").at(0).at("ranks");
  EXPECT_EQ(ranks.at(0).at("call").dump(),
            R"({"group":"world","number":41,"call":"all_reduce sum f32[1000]","algorithm":"ring",)"
            R"("bytes":4000,"is_under_way":true,"age_s":3.2})");
  EXPECT_TRUE(ranks.at(2).at("call").is_null());
  EXPECT_TRUE(ranks.at(2).at("device_index").is_null());
  EXPECT_EQ(sample_json(sample).at("notes").dump(), R"(["a note"])");
}

TEST(TopTableTest, SizesHaveAtMostFourDigits) {
  EXPECT_EQ(size_text(0), "0B");
  EXPECT_EQ(size_text(1023), "1023B");
  EXPECT_EQ(size_text(1024), "1.0K");
  EXPECT_EQ(size_text((1 << 20) - 1), "1.0M");
  EXPECT_EQ(size_text(std::uint64_t{3} << 29), "1.5G");
  EXPECT_EQ(size_text(std::uint64_t{141} << 30), "141G");
  EXPECT_EQ(size_text(std::uint64_t{5000} << 40), "5000T");
}

TEST(TopColumnsTest, TextIsCutBetweenCharacters) {
  EXPECT_EQ(width_of("abc"), 3U);
  EXPECT_EQ(width_of("größe"), 5U);
  EXPECT_EQ(width_of("計算"), 4U);
  EXPECT_EQ(cut("größe", 3), "grö");
  EXPECT_EQ(cut("計算", 3), "計");
  EXPECT_EQ(cut("計算", 1), "");
  EXPECT_EQ(cut("abc", 80), "abc");
  EXPECT_EQ(cut("", 0), "");
}

TEST(TopColumnsTest, CellsStandBelowEachOther) {
  Columns columns({">N", "NAME", "TEXT"});
  columns.add({"10", "größe", "x"});
  columns.add({"7", "", "long"});
  EXPECT_THAT(columns.lines(), ElementsAre(" N  NAME   TEXT", "10  größe  x", " 7  -      long"));
}

// Rows of a frame as the terminal shows them.
std::vector<std::string> rows_of(std::string frame) {
  std::vector<std::string> rows;
  for (const std::string sequence : {"\x1b[H", "\x1b[K", "\x1b[J"}) {
    for (auto at = frame.find(sequence); at != std::string::npos; at = frame.find(sequence)) {
      frame.erase(at, sequence.size());
    }
  }
  for (std::size_t end = 0; (end = frame.find("\r\n")) != std::string::npos;) {
    rows.push_back(frame.substr(0, end));
    frame.erase(0, end + 2);
  }
  rows.push_back(frame);
  return rows;
}

TEST(TopFrameTest, LinesAreCutAndNeverWrap) {
  EXPECT_THAT(rows_of(frame_of({"12345", "1234", "123456789"}, 5, 24)),
              ElementsAre("12345", "1234", "12345", ""));
  // Erasing behind a full line would take its last character.
  EXPECT_EQ(frame_of({"12345", "1234"}, 5, 24),
            "\x1b[H"
            "12345\r\n1234\x1b[K\r\n\x1b[J");
  // A frame as high as the screen must not scroll it.
  EXPECT_EQ(frame_of({"1", "2"}, 5, 2),
            "\x1b[H"
            "1\x1b[K\r\n2\x1b[K");
  EXPECT_EQ(frame_of({}, 5, 2), "\x1b[H\x1b[J");
}

TEST(TopFrameTest, MissingLinesAreCounted) {
  EXPECT_THAT(rows_of(frame_of({"1", "2", "3", "4"}, 40, 3)),
              ElementsAre("1", "2", "(2 more lines)"));
  EXPECT_THAT(rows_of(frame_of({"1", "2", "3", "4"}, 5, 1)), ElementsAre("(4 mo"));
}

TEST(TopOptionsTest, AreChecked) {
  const Options options = parse_options({"--once", "--json", "-i", "0.25"});
  EXPECT_TRUE(options.once);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.interval, std::chrono::milliseconds(250));
  EXPECT_EQ(parse_options({}).interval, std::chrono::seconds(1));
  EXPECT_THAT(parse_options({"--help"}).text, HasSubstr("--interval"));
  EXPECT_THAT(parse_options({"--version"}).text, HasSubstr("gantry-top "));
  EXPECT_ERROR(parse_options({"--interval", "0.01"}), InvalidArgument,
               "--interval: expected seconds from 0.05 to 86400, but got 0.01");
  EXPECT_ERROR(parse_options({"-i", "1e9"}), InvalidArgument, "--interval: expected seconds from");
  EXPECT_THROW((void)parse_options({"-i", "nan"}), InvalidArgument);
  EXPECT_THROW((void)parse_options({"now"}), InvalidArgument);
}

}  // namespace
}  // namespace gantry::top
