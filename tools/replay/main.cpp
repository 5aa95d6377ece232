#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/properties.hpp>

#include "tools/program/output_file.hpp"
#include "tools/program/program.hpp"
#include "tools/replay/chart.hpp"
#include "tools/replay/format.hpp"
#include "tools/replay/log_file.hpp"
#include "tools/replay/options.hpp"
#include "tools/replay/report.hpp"
#include "tools/replay/worker.hpp"
#include "tools/replay/workload.hpp"

namespace gantry::replay {
namespace {

constexpr int kNotWell = 1;

// A chunk of a simulated device is an open file.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  write_output(path, text);
}

AllocationSequence load(const Options& options) {
  AllocationSequence sequence = options.workload.empty()
                                    ? read_log(options.file, options.log_device)
                                    : make_workload(options.workload);
  if (sequence.ops.empty()) {
    throw InvalidArgument(fmt::format("{}: there is no allocation in it", sequence.name));
  }
  return sequence;
}

ReplayOptions replay_options(const Options& options, const SequenceFacts& facts) {
  ReplayOptions replay;
  replay.device = Device::cuda(options.device);
  replay.repeat = options.repeat;
  replay.max_seconds = options.max_seconds;
  replay.threads_as_logged = options.threads_as_logged;
  replay.limit_bytes = options.limit_bytes;
  if (options.limit_factor) {
    replay.limit_bytes = static_cast<std::uint64_t>(*options.limit_factor *
                                                    static_cast<double>(facts.peak_live_bytes));
  }
  return replay;
}

std::string describe_device(const Options& options) {
  if (options.device >= device_count()) {
    throw InvalidArgument(device_count() == 0
                              ? std::string("no device; --simulate 16GiB runs on a simulated one")
                              : fmt::format("--device: expected a device below {}, but got {}",
                                            device_count(), options.device));
  }
  const Device device = Device::cuda(options.device);
  const DeviceProperties& properties = device_properties(device);
  return fmt::format("{} ({}, {})", properties.name, device.str(),
                     bytes_text(properties.total_memory));
}

ReplayResult measure_here(const AllocationSequence& sequence, const std::string& name,
                          const ReplayOptions& options) {
  CountingDriver counting;
  const auto backend = make_backend(name, options.device);
  ReplayResult result = replay(sequence, *backend, counting, options);
  result.backend = name;
  return result;
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.text.empty()) {
    fmt::print("{}", options.text);
    return 0;
  }
  if (options.simulate_bytes) {
    ::setenv("GANTRY_SIM_DEVICES", fmt::format("{}", options.device + 1).c_str(), 1);
    ::setenv("GANTRY_SIM_MEMORY", fmt::format("{}", *options.simulate_bytes).c_str(), 1);
  }
  for (const std::string& path : {options.json, options.picture, options.dump}) {
    if (!path.empty() && path != "-") check_output(path);
  }
  const AllocationSequence sequence = load(options);
  if (!options.dump.empty()) write_dump(sequence, options.dump);
  if (options.backends.empty()) return 0;

  Report report;
  report.sequence = sequence.name;
  report.operations = sequence.ops.size();
  report.streams = sequence.streams;
  report.threads = sequence.threads;
  report.unmatched_frees = sequence.unmatched_frees;
  report.incomplete_lines = sequence.incomplete_lines;
  report.facts = facts_of(sequence);
  report.device = describe_device(options);
  report.repeat = options.repeat;
  const ReplayOptions replay = replay_options(options, report.facts);
  report.limit_bytes = replay.limit_bytes;
  if (options.backends.size() == 1) {
    report.results.push_back(measure_here(sequence, options.backends.front(), replay));
  } else {
    const TemporaryFile dump(".gantseq");
    write_dump(sequence, dump.path());
    for (const std::string& name : options.backends) {
      report.results.push_back(measure_in_child(options, dump.path(), name));
    }
  }
  if (!options.json.empty()) write_text(options.json, report_json(report));
  if (!options.picture.empty()) {
    write_text(options.picture,
               options.picture.ends_with(".html") ? chart_html(report) : chart_svg(report));
  }
  if (!options.quiet) {
    std::FILE* out = options.json == "-" ? stderr : stdout;
    fmt::print(out, "{}", report_text(report));
  }
  bool measured = false;
  bool well = true;
  for (const ReplayResult& result : report.results) {
    if (!result.error.empty()) continue;
    measured = true;
    well = well && result.completed() && result.leaked_bytes == 0;
  }
  return measured && well ? 0 : kNotWell;
}

}  // namespace
}  // namespace gantry::replay

int main(int argc, char** argv) {
  gantry::replay::raise_file_limit();
  return gantry::run_program("gantry-replay", argc, argv, gantry::replay::run);
}
