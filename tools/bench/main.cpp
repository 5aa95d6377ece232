#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "tools/bench/algorithm_override.hpp"
#include "tools/bench/comm_bench.hpp"
#include "tools/bench/model/model_report.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/rank_bench.hpp"
#include "tools/bench/rank_group.hpp"
#include "tools/bench/report.hpp"
#include "tools/bench/results.hpp"
#include "tools/program/program.hpp"

namespace gantry::bench {
namespace {

constexpr int kWrong = 1;
constexpr int kNothing = 3;  // was measured

// All sizes of all operations with one algorithm, as one rank. `add` is called on rank 0, as is
// `tell` for what the algorithm cannot do.
template <class Add, class Tell>
void run_rank(const Communicator& communicator, const Options& options, const std::string& variant,
              const std::string& device_name, Add add, Tell tell) {
  RankBench bench(communicator);
  const int ranks = communicator.size();
  const Selector selector = present_selector(ranks, device_name);
  const std::string transport = communicator.transport();
  for (const CollectiveKind kind : options.operations) {
    const std::vector<Case> cases = cases_of(options, kind, ranks);
    std::size_t unserved = 0;
    for (Case what : cases) {
      const Choice choice = selector.choose(describe(what), what.bytes);
      // The line of one algorithm holds no other.
      if (selector.forced() != Algorithm::automatic && choice.algorithm != selector.forced()) {
        ++unserved;
        continue;
      }
      for (const bool graph : {false, true}) {
        if (graph ? options.graph_calls == 0 : !options.eager) continue;
        what.graph_calls = graph ? options.graph_calls : 0;
        CaseResult result;
        if (graph && (choice.algorithm == Algorithm::host || transport == "host")) {
          result.skipped = "the host takes part, so it cannot be captured";
        } else {
          result = bench.run(what, options.repetitions, options.check);
        }
        if (communicator.rank() != 0) continue;
        Row row = row_of(what, variant,
                         transport == "p2p" ? std::string(name(choice.algorithm)) : transport);
        row.wrong = result.wrong;
        row.note = result.skipped;
        if (result.timing.batches > 0) {
          row.set_timing(result.timing, bus_factor(kind, ranks));
        }
        add(std::move(row));
      }
    }
    if (unserved > 0 && communicator.rank() == 0) {
      tell(unserved_text(kind, name(selector.forced()), unserved, cases.size()));
    }
  }
}

Report measure_group(const Options& options) {
  RankGroup group(options.devices);
  if (options.root >= group.ranks()) {
    throw InvalidArgument(
        fmt::format("--root: expected a rank below {}, but got {}", group.ranks(), options.root));
  }
  if (group.reports()) check_outputs(options);
  Report report{.library = fmt::format("gantry {}", GANTRY_VERSION),
                .device = group.device_name(),
                .ranks = group.ranks(),
                .launched_by = group.launched_by(),
                .rows = {}};
  const Table table(options, group.reports());
  table.print(head_text(report));
  for (const std::string& algorithm : options.algorithms) {
    const AlgorithmOverride forced(algorithm, options.blocks);
    std::string variant =
        options.blocks ? fmt::format("{}×{}", algorithm, *options.blocks) : algorithm;
    if (options.registered) variant += " registered";
    group.run([&](const Communicator& communicator) {
      run_rank(
          communicator, options, variant, group.device_name(),
          [&](Row row) {
            table.print(row_text(row));
            report.rows.push_back(std::move(row));
          },
          [&](const std::string& line) { table.print(line); });
    });
  }
  table.print(tail_text(report));
  if (!group.reports()) report.ranks = 0;
  return report;
}

Report measure_comm(const Options& options) {
  const int visible = device_count();
  if (visible == 0) throw NotSupported("there is no device; GANTRY_SIM_DEVICES=4 simulates some");
  if (options.devices > visible) {
    throw InvalidArgument(fmt::format("--gpus: expected at most the {} visible devices, but got {}",
                                      visible, options.devices));
  }
  check_outputs(options);
  std::vector<Device> devices;
  for (int i = 0; i < (options.devices == 0 ? visible : options.devices); ++i) {
    devices.push_back(Device::cuda(i));
  }
  Report report{.library = fmt::format("gantry {}", GANTRY_VERSION),
                .device = device_properties(devices.front()).name,
                .ranks = static_cast<int>(devices.size()),
                .launched_by = "one process",
                .rows = {}};
  const Table table(options, true);
  table.print(head_text(report));
  const AlgorithmOverride forced(options.algorithms.front(), std::nullopt);
  for (const std::string& form : options.forms) {
    std::int64_t before = -1;
    for (const std::int64_t bytes : options.sizes) {
      const CommCase what{form, options.dtype, options.op, bytes, options.tensors};
      Row row = run_comm(what, devices, options.repetitions, options.check);
      if (row.count == before) continue;
      before = row.count;
      table.print(row_text(row));
      report.rows.push_back(std::move(row));
    }
  }
  table.print(tail_text(report));
  return report;
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.text.empty()) {
    fmt::print("{}", options.text);
    return 0;
  }
  std::vector<Report> others;
  for (const std::string& path : options.compare) others.push_back(read_report(path));
  if (!options.draw.empty()) {
    write_results(options, read_report(options.draw), others);
    return 0;
  }
  if (!options.model.empty()) {
    write_results(options, predict_all(options, fmt::format("gantry {}", GANTRY_VERSION)), others);
    return 0;
  }
  const Report report = options.forms.empty() ? measure_group(options) : measure_comm(options);
  if (report.ranks == 0) return 0;  // another process reports
  write_results(options, report, others);
  if (!has_measurements(report)) return kNothing;
  return wrong_elements(report) == 0 ? 0 : kWrong;
}

}  // namespace
}  // namespace gantry::bench

int main(int argc, char** argv) {
  return gantry::run_program("gantry-bench", argc, argv, gantry::bench::run);
}
