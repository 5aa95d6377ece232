#include "tools/bench/model/model_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gantry/core/error.hpp>

#include "tools/bench/algorithm_override.hpp"
#include "tools/bench/results.hpp"

namespace gantry::bench {

namespace {

// The numbers of ranks, checked.
std::vector<int> ranks_of(const Options& options, const MachineModel& machines) {
  const int most = machines.most_ranks();
  std::vector<int> all = options.ranks;
  if (all.empty()) all.push_back(most);
  for (const int ranks : all) {
    if (ranks >= 2 && ranks <= most) continue;
    throw InvalidArgument(fmt::format("--ranks: expected 2 to the {} GPUs of {}, but got {}", most,
                                      machines.path, ranks));
  }
  const int least = *std::min_element(all.begin(), all.end());
  if (options.root >= least) {
    throw InvalidArgument(
        fmt::format("--root: expected a rank below {}, but got {}", least, options.root));
  }
  return all;
}

// Requires that the algorithms have schedules of gantry. Nothing is printed yet.
void check_algorithms(const Options& options, const MachineModel& machines,
                      const std::vector<int>& all_ranks) {
  for (const std::string& algorithm : options.algorithms) {
    const AlgorithmOverride forced(algorithm, options.blocks);
    for (const int ranks : all_ranks) static_cast<void>(Model(machines, ranks));
  }
}

Row predicted_row(const Case& what, const std::string& variant, int ranks,
                  const Prediction& prediction) {
  Row row = row_of(what, variant, prediction.algorithm);
  row.mode = "model";
  row.predicted = {
      .ranks = ranks,
      .steps = prediction.steps,
      .messages = prediction.messages,
      .links = {{"peer", prediction.peer.busiest_bytes, prediction.peer.bytes},
                {"host", prediction.host.busiest_bytes, prediction.host.bytes},
                {"network", prediction.network.busiest_bytes, prediction.network.bytes}}};
  const double us = prediction.time_us;
  row.set_timing(
      {.calls = 1, .batches = 1, .mean_us = us, .min_us = us, .p50_us = us, .p99_us = us},
      bus_factor(what.kind, ranks));
  return row;
}

}  // namespace

std::string model_head_text(const std::string& library, const MachineModel& machines) {
  return fmt::format(
      "# {}, model of {} × {} × {}, from {}\n"
      "# time: steps × latency + bytes of the busiest link / bandwidth, for each kind of link\n"
      "# peer, host, network: bytes of the busiest link; total: bytes of all links\n"
      "#{:>12} {:>12} {:>5} {:>5} {:>4}  {:<14} {:>5} {:<14} {:>6} {:>10} {:>11} {:>11} {:>11} "
      "{:>14} {:>9} {:>8} {:>8}\n",
      library, machines.machines, machines.width(), machines.device, machines.path, "size", "count",
      "type", "redop", "root", "operation", "ranks", "algo", "steps", "messages", "peer", "host",
      "network", "total", "time/us", "algbw", "busbw");
}

std::string model_row_text(const Row& row) {
  const PredictedCounts& counts = *row.predicted;
  std::int64_t total = 0;
  for (const PredictedCounts::Links& links : counts.links) total += links.bytes;
  return fmt::format(
      " {:>12} {:>12} {:>5} {:>5} {:>4}  {:<14} {:>5} {:<14} {:>6} {:>10} {:>11} {:>11} {:>11} "
      "{:>14} {:>9.2f} {:>8.2f} {:>8.2f}\n",
      row.bytes, row.count, row.dtype, row.redop, row.root, row.operation, counts.ranks,
      row.algorithm, counts.steps, counts.messages, counts.links[0].busiest_bytes,
      counts.links[1].busiest_bytes, counts.links[2].busiest_bytes, total, row.time_us,
      row.algbw_gbs, row.busbw_gbs);
}

Report predict_all(const Options& options, const std::string& library) {
  const MachineModel machines = read_model(options.model);
  const std::vector<int> all_ranks = ranks_of(options, machines);
  check_algorithms(options, machines, all_ranks);
  check_outputs(options);
  Report report{.library = library + " model",
                .device = machines.device,
                .ranks = *std::max_element(all_ranks.begin(), all_ranks.end()),
                .launched_by = "nobody, a model of " + machines.path,
                .rows = {}};
  const Table table(options, true);
  table.print(model_head_text(library, machines));
  for (const int ranks : all_ranks) {
    for (const std::string& algorithm : options.algorithms) {
      const AlgorithmOverride forced(algorithm, options.blocks);
      const Model model(machines, ranks);
      const std::string variant =
          all_ranks.size() == 1 ? algorithm : fmt::format("{}, {} ranks", algorithm, ranks);
      for (const CollectiveKind kind : options.operations) {
        std::size_t unserved = 0;
        const std::vector<Case> cases = cases_of(options, kind, ranks);
        for (const Case& what : cases) {
          if (!model.serves(what)) {
            ++unserved;
            continue;
          }
          Row row = predicted_row(what, variant, ranks, model.predict(what));
          table.print(model_row_text(row));
          report.rows.push_back(std::move(row));
        }
        if (unserved > 0) table.print(unserved_text(kind, algorithm, unserved, cases.size()));
      }
    }
  }
  return report;
}

}  // namespace gantry::bench
