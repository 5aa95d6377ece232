// gantry-bench --model: what it predicts, what it writes, and what it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/machine/topology.hpp>

#include "core/text/json.hpp"
#include "machine/topology/topology_file.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tools/bench/model/model.hpp"
#include "tools/bench/model/model_file.hpp"

namespace gantry::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;
using testing::TemporaryFolder;

const std::filesystem::path kExample =
    std::filesystem::path(GANTRY_TEST_MODELS) / "hgx_h200_x128.json";

constexpr const char* kLinks = R"({
  "peer": {"latency_us": 2, "bandwidth_gbs": 100},
  "host": {"latency_us": 5, "bandwidth_gbs": 10},
  "network": {"latency_us": 20, "bandwidth_gbs": 25}})";

// A machine of `gpus` GPUs that NVSwitches join, with a network interface beside every second one.
std::string topology_xml(int gpus) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">";
  for (int i = 0; i < gpus; ++i) {
    if (i % 2 == 0)
      text += fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x060400\">", i + 1);
    text += fmt::format(
        "<pci busid=\"0000:{:02x}:01.0\" class=\"0x030200\" vendor=\"0x10de\"><gpu dev=\"{}\" "
        "sm=\"90\"><nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/></gpu>"
        "</pci>",
        i + 16, i);
    if (i % 2 == 0) continue;
    text += fmt::format(
        "<pci busid=\"0000:{:02x}:02.0\" class=\"0x020700\"><nic><net name=\"mlx5_{}\"/></nic>"
        "</pci></pci>",
        i + 16, i / 2);
  }
  return text + "</cpu></system>\n";
}

// A folder with a topology and a model of it.
class ModelFolder {
 public:
  explicit ModelFolder(int gpus) { write("machine.xml", topology_xml(gpus)); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  std::string model(int machines, const std::string& device = "NVIDIA H200") const {
    return write("model.json",
                 fmt::format(R"({{"kind": "gantry machines", "schema": 1, "device": "{}",
                              "topology": "machine.xml", "machines": {}, "links": {}}})",
                             device, machines, kLinks));
  }

 private:
  TemporaryFolder folder_;
};

Outcome bench(std::vector<std::string> words, std::optional<std::string> devices = std::nullopt) {
  words.insert(words.begin(), GANTRY_TEST_BENCH);
  return run_command({.argv = std::move(words),
                      .environment = {{"GANTRY_SIM_DEVICES", std::move(devices)},
                                      {"GANTRY_COLL_ALGO", std::nullopt},
                                      {"GANTRY_COLL_TABLE", std::nullopt}},
                      .timeout = std::chrono::seconds(testing::kIsSanitized ? 600 : 100)});
}

Json results(std::vector<std::string> words, std::optional<std::string> devices = std::nullopt) {
  words.insert(words.end(), {"-J", "-", "-q"});
  const Outcome outcome = bench(std::move(words), std::move(devices));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  return Json::parse(outcome.out);
}

TEST(BenchModelTest, CountsAndTimesAreThoseOfTheFormula) {
  const ModelFolder folder(4);
  const Json json = results({"--model", folder.model(1), "--ranks", "3", "-o", "all_reduce", "-b",
                             "800", "-e", "800", "-a", "ll,two_shot,host"});
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>> rows;
  std::vector<double> times;
  for (const Json& row : json.at("rows").elements()) {
    const Json& counts = row.at("predicted");
    EXPECT_EQ(row.at("mode"), "model");
    EXPECT_EQ(counts.at("ranks"), 3);
    const Json& links = counts.at("links");
    const char* const kind = row.at("algorithm") == "host" ? "host" : "peer";
    rows.emplace_back(row.at("algorithm").as<std::string>(), counts.at("steps").as<std::int64_t>(),
                      counts.at("messages").as<std::int64_t>(),
                      links.at(kind).at("busiest_bytes").as<std::int64_t>(),
                      links.at(kind).at("bytes").as<std::int64_t>());
    times.push_back(row.at("time_us").as<double>());
    EXPECT_EQ(row.at("p50_us").as<double>(), times.back());
  }
  // LL doubles 800 bytes, for each of two peers. In two shots rank 0 has slices of 272, 272 and 256
  // bytes: it sends two of them, and its result twice. Entries of 152 bytes hold all by the host.
  EXPECT_THAT(rows, ElementsAre(std::tuple{"ll", 1, 6, 3'200, 9'600},
                                std::tuple{"two_shot", 2, 12, 272 + 256 + 2 * 272, 3'200},
                                std::tuple{"host", 1, 6, 6 * 952, 6 * 952}));
  EXPECT_THAT(times, ElementsAre(::testing::DoubleEq(2 + 3'200 / 100e3),
                                 ::testing::DoubleEq(4 + 1'072 / 100e3),
                                 ::testing::DoubleEq(5 + 5'712 / 10e3)));
}

TEST(BenchModelTest, GpusShareTheNearestNetworkInterface) {
  const ModelFolder folder(4);
  const MachineModel machines = read_model(folder.model(2));
  EXPECT_THAT(machines.nics, ElementsAre(0, 0, 1, 1));
  const Json json =
      results({"--model", folder.model(2), "-o", "all_to_all", "-b", "8M", "-e", "8M"});
  const Json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("algorithm"), "hierarchical");
  const Json& links = row.at("predicted").at("links");
  // Each of two ranks sends half of its array to the other machine, and entries to four ranks.
  EXPECT_EQ(links.at("network").at("busiest_bytes"), 2 * ((4 << 20) + 4 * 152 + 152));
  EXPECT_EQ(links.at("network").at("bytes"), 4 * 2 * ((4 << 20) + 4 * 152 + 152));
}

// Algorithms by operation and bytes.
std::map<std::pair<std::string, std::int64_t>, std::string> algorithms_in(const Json& json) {
  std::map<std::pair<std::string, std::int64_t>, std::string> result;
  for (const Json& row : json.at("rows").elements()) {
    result[{row.at("operation").as<std::string>(), row.at("bytes").as<std::int64_t>()}] =
        row.at("algorithm").as<std::string>();
  }
  return result;
}

TEST(BenchModelTest, AlgorithmsAreThoseOfARun) {
  const ModelFolder folder(4);
  for (const bool registers : {false, true}) {
    std::vector<std::string> words{"-o", "all", "-b", "8", "-e", "4M", "-f", "8"};
    if (registers) words.push_back("-R");
    std::vector<std::string> modelled = words;
    modelled.insert(modelled.end(), {"--model", folder.model(1, "Simulated GPU")});
    words.insert(words.end(), {"-n", "1", "-w", "1", "--batches", "1", "-c", "0"});
    const auto run = algorithms_in(results(words, "4"));
    EXPECT_GT(run.size(), 50u);
    EXPECT_EQ(algorithms_in(results(modelled)), run);
  }
}

TEST(BenchModelTest, LinksOfTheTopologyDecideWhatGoesBetweenGpus) {
  const ModelFolder folder(4);
  machine::Topology topology = machine::read_topology_file(folder.write("t.xml", topology_xml(4)));
  const auto algorithms = [&] {
    folder.write("machine.xml", machine::topology_json(topology));
    const auto all =
        algorithms_in(results({"--model", folder.model(1), "-b", "512K", "-e", "512K"}));
    return all.begin()->second;
  };
  EXPECT_EQ(algorithms(), "ll128_two_shot");
  topology.links[0][1].nvlinks = {0, machine::FactSource::nvml};  // PCIe may reorder stores
  EXPECT_EQ(algorithms(), "two_shot");
  topology.links[2][3].peer_access = {false, machine::FactSource::nvml};
  EXPECT_EQ(algorithms(), "host");
}

TEST(BenchModelTest, AThousandRanksNeedNoDevice) {
  const Outcome outcome = bench({"--model", kExample.string(), "--ranks", "2,64,1004,1024", "-o",
                                 "all", "-b", "8", "-e", "64M", "-f", "64"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("model of 128 × 8 × NVIDIA H200"));
  EXPECT_THAT(outcome.out, HasSubstr(" 1004 host "));  // the last machine has fewer ranks
  EXPECT_THAT(outcome.out, HasSubstr(" 1024 hierarchical "));
  EXPECT_EQ(outcome.err, "");
}

TEST(BenchModelTest, AnAlgorithmThatDoesNotServeASizeIsNamed) {
  const ModelFolder folder(2);
  const Outcome outcome =
      bench({"--model", folder.model(1), "-a", "ll,two_shot", "-b", "8", "-e", "8M", "-f", "1024"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("# all_reduce: ll does not serve 1 of 3 sizes\n"));
  EXPECT_THAT(outcome.out, HasSubstr("# all_reduce: two_shot does not serve it\n"));
}

TEST(BenchModelTest, PredictionsAreDrawnBesideMeasurements) {
  const TemporaryFolder folder;
  const std::string predicted = (folder / "model.json").string();
  const std::string drawing = (folder / "both.svg").string();
  const std::string path = kExample.string();
  EXPECT_EQ(bench({"--model", path, "--ranks", "8", "-e", "1K", "-J", predicted}).exit_code, 0);
  const Outcome outcome = bench(
      {"--model", path, "--ranks", "16", "-e", "1K", "--svg", drawing, "--compare", predicted});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::ifstream file(drawing);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("model auto, model"));
}

TEST(BenchModelTest, ABadFileIsRefusedByItsField) {
  const ModelFolder folder(4);
  const std::string good = fmt::format(
      R"({{"kind": "gantry machines", "schema": 1, "topology": "machine.xml", "machines": 2,
          "links": {}}})",
      kLinks);
  const std::string none = folder.write("none.xml", "<system version=\"1\"></system>");
  const std::vector<std::tuple<std::string, std::string, std::string>> kCases{
      {"gantry machines", "gantry topology", "\"kind\": \"gantry machines\""},
      {"\"schema\": 1", "\"schema\": 2", "$.schema: expected 1, but got 2"},
      {"\"topology\": \"machine.xml\",", "", "a member \"topology\""},
      {"machine.xml", "other.xml", "$.topology: topology file '"},
      {"\"machine.xml\"", "7", "$.topology: expected a string, but got 7"},
      {"machine.xml", "none.xml", "expected a machine with GPUs, but got none"},
      {"\"machines\": 2", "\"machines\": 0",
       "$.machines: expected 1 to 256 machines of 4 GPUs, but got 0"},
      {"\"machines\": 2", "\"machines\": 257", "but got 257"},
      {"\"machines\": 2", "\"machines\": 2.5", "$.machines: expected 1 to 256"},
      {"\"machines\": 2", "\"machine\": 2", "$.machine: expected only the fields kind, schema"},
      {"\"latency_us\": 2,", "\"latency_us\": 0,",
       "$.links.peer.latency_us: expected a number greater than 0"},
      {"\"bandwidth_gbs\": 10}", "\"bandwidth_gbs\": -1}",
       "$.links.host.bandwidth_gbs: expected a number"},
      {"\"bandwidth_gbs\": 10}", "\"bandwidth\": 1}",
       "$.links.host.bandwidth: expected only the fields"},
      {"\"bandwidth_gbs\": 25}", "\"bandwidth_gbs\": \"fast\"}",
       "$.links.network.bandwidth_gbs: expected a number"},
      {"\"network\"", "\"nvlink\"", "$.links.nvlink: expected only the fields peer, host, network"},
      {good, "", "parse error"},
  };
  for (const auto& [old, changed, expected] : kCases) {
    std::string text = good;
    const auto at = text.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    text.replace(at, old.size(), changed);
    const std::string path = folder.write("bad.json", text);
    const Outcome outcome = bench({"--model", path});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_EQ(outcome.out, "") << expected;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("--model: '{}': ", path)));
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

TEST(BenchModelTest, OptionsThatDoNotGoTogetherAreRefused) {
  const ModelFolder folder(4);
  const std::string path = folder.model(2);
  const std::vector<std::pair<std::vector<std::string>, std::string>> kCases{
      {{"--comm"}, "--comm excludes --model"},
      {{"-g", "2"}, "--gpus excludes --model"},
      {{"-n", "2"}, "--iters excludes --model"},
      {{"-c", "0"}, "--check excludes --model"},
      {{"-G", "2"}, "--graph excludes --model"},
      {{"--draw", "x.json", "--svg", "x.svg"}, "--draw excludes --model"},
      {{"--ranks", "1"}, "--ranks: expected 2 to the 8 GPUs of " + path + ", but got 1"},
      {{"--ranks", "4,9"}, "but got 9"},
      {{"--ranks", "4,8", "--root", "4", "-o", "reduce"},
       "--root: expected a rank below 4, but got 4"},
      {{"-a", "auto,nccl"}, "--model: expected algorithms of gantry, but got nccl"},
      {{"--transport", "nccl"}, "--model: expected algorithms of gantry, but got nccl"},
  };
  for (const auto& [words, expected] : kCases) {
    std::vector<std::string> all{"--model", path};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench(all);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_EQ(outcome.out, "") << expected;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
  const Outcome outcome = bench({"--ranks", "4"}, "4");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("--ranks requires --model"));
}

}  // namespace
}  // namespace gantry::bench
