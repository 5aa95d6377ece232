// Measures the bandwidths of this machine's devices for `glaunch check --full`.
//
// Each line of the output is a JSON object:
//   {"devices": [uuid, …], "platform": "cuda", "measurements": 12}
//   {"begin": 3, "route": "write", "device": 0, "other": 1}     other: a device, or a NUMA node
//   {"done": 3, "gigabytes_per_second": 341.2, "bytes": …, "wrong_bytes": 0, "by": "kernel"}
//   {"failed": 3, "cause": "…"}                                 the next one follows
//   {"cause": "…"}                                              there are no devices
#include <fmt/format.h>

#include <cstdio>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/properties.hpp>

#include "command_line/command_line.hpp"
#include "core/text/json.hpp"
#include "tools/check/bandwidth.hpp"
#include "tools/program/program.hpp"

namespace gantry::check {
namespace {

// A line is complete before the next measurement begins, which may end the process.
void tell(const Json& line) {
  if (std::fputs((line.dump() + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error("failed to write to standard output");
  }
}

int run(const std::vector<std::string>& arguments) {
  CommandLine line("Measures devices for glaunch check --full.", "gantry-check-devices");
  int first = 0;
  std::vector<std::string> texts;
  line.add_option("--first", first, "number of the first measurement (0)").range(0, 1 << 30);
  line.add_option("--node", texts, "NUMA node with its CPUs; repeatable (memory anywhere)")
      .repeatable()
      .value("ID:CPUS");
  const std::string text = line.parse(arguments);
  if (!text.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::vector<HostNode> nodes;
  for (const std::string& one : texts) nodes.push_back(parse_host_node(one));
  if (nodes.empty()) nodes.push_back({-1, {}});

  Json uuids = Json::array();
  try {
    init();
    for (int i = 0; i < device_count(); ++i) {
      uuids.push_back(device_properties(Device::cuda(i)).uuid);
    }
  } catch (const Error& error) {
    tell(Json::object({{"cause", error.what()}}));
    return 1;
  }
  const std::vector<Measurement> all = list_measurements(device_count(), nodes.size());
  tell(Json::object({{"devices", std::move(uuids)},
                     {"platform", name(platform())},
                     {"measurements", all.size()}}));
  BandwidthBench bench(nodes);
  for (auto at = static_cast<std::size_t>(first); at < all.size(); ++at) {
    const Measurement& one = all[at];
    const bool is_host = one.route == Route::to_device || one.route == Route::to_host;
    tell(Json::object(
        {{"begin", at},
         {"route", name(one.route)},
         {"device", one.device},
         {"other", is_host ? nodes[static_cast<std::size_t>(one.other)].id : one.other}}));
    try {
      const Bandwidth result = bench.measure(one);
      Json done = Json::object({{"done", at},
                                {"gigabytes_per_second", result.bytes_per_second / 1e9},
                                {"bytes", result.bytes},
                                {"wrong_bytes", result.wrong_bytes},
                                {"by", result.is_by_kernel ? "kernel" : "copy"}});
      if (result.host_node) done.set("host_node", *result.host_node);
      tell(done);
    } catch (const Error& error) {
      tell(Json::object({{"failed", at}, {"cause", error.what()}}));
    }
  }
  return 0;
}

}  // namespace
}  // namespace gantry::check

int main(int argc, char** argv) {
  return gantry::run_program("gantry-check-devices", argc, argv, gantry::check::run);
}
