#include "tools/tune/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "tools/bench/algorithm_override.hpp"
#include "tools/bench/operation.hpp"
#include "tools/bench/rank_bench.hpp"

namespace gantry::tune {

namespace {

// What takes no thread blocks of ours, so one number is as good as another.
constexpr std::uint16_t kAnyBlocks = 16;

std::vector<Choice> candidates(const Options& options, int ranks) {
  std::vector<Choice> choices;
  for (const Algorithm algorithm : options.algorithms) {
    if (needs_three_ranks(algorithm) && ranks < 3) continue;
    const bool kernels = algorithm != Algorithm::nccl && algorithm != Algorithm::host &&
                         algorithm != Algorithm::copy;
    if (!kernels) {
      choices.push_back({algorithm, kAnyBlocks});
      continue;
    }
    for (const int blocks : options.blocks) {
      choices.push_back({algorithm, static_cast<std::uint16_t>(blocks)});
    }
  }
  return choices;
}

bench::Row row_of(const bench::Case& what, const Choice& choice, const bench::CaseResult& result,
                  int ranks) {
  bench::Row row;
  row.operation = bench::operation_name(what.kind);
  row.dtype = name(what.dtype);
  row.redop = reduces(what.kind) ? name(what.op) : "-";
  row.root = what.root;
  row.bytes = what.bytes;
  row.count = what.count;
  row.algorithm = name(choice.algorithm);
  row.variant = fmt::format("{}×{}", row.algorithm, choice.blocks);
  row.mode = what.graph_calls > 0 ? "graph" : "eager";
  row.in_place = bench::is_in_place(what.kind);
  row.wrong = result.wrong;
  row.note = result.skipped;
  if (result.timing.batches > 0) row.set_timing(result.timing, bench::bus_factor(what.kind, ranks));
  return row;
}

// One candidate at all sizes of all operations it can do, as one rank. `add(case, result)` is
// called on rank 0.
template <class Add>
void run_rank(const Communicator& communicator, const Options& options, const Choice& choice,
              const std::string& device_name, Add add) {
  bench::RankBench bench(communicator);
  const Selector selector = bench::present_selector(communicator.size(), device_name);
  for (const CollectiveKind kind : options.operations) {
    std::int64_t before = -1;
    for (const std::int64_t bytes : options.sizes) {
      bench::Case what =
          bench::make_case(kind, options.dtype, ReduceOp::sum, 0, bytes, communicator.size());
      what.registered = needs_registration(choice.algorithm);
      const Choice made = selector.choose(bench::describe(what), what.bytes);
      if (what.count == before || made.algorithm != choice.algorithm) continue;
      before = what.count;
      what.graph_calls = options.eager ? 0 : options.graph_calls;
      bench::CaseResult result = bench.run(what, options.repetitions, /*check=*/true);
      if (!result.skipped.empty() && what.graph_calls > 0) {
        what.graph_calls = 0;
        result = bench.run(what, options.repetitions, /*check=*/true);
      }
      if (communicator.rank() == 0) add(what, result);
    }
  }
}

std::vector<Json> tables_of(const std::string& text) {
  if (text.empty()) return {};
  (void)Selector::parse(text, 2, "*");  // the errors of a bad file
  Json json = Json::parse(text);
  if (json.is_array()) return json.elements();
  return {std::move(json)};
}

}  // namespace

Findings sweep(bench::RankGroup& group, const Options& options,
               const std::function<void(const std::string&)>& progress) {
  Findings findings;
  findings.report.library = "gantry";
  findings.report.device = group.device_name();
  findings.report.ranks = group.ranks();
  findings.report.launched_by = group.launched_by();
  const std::vector<Choice> choices = candidates(options, group.ranks());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    if (group.reports()) {
      progress(fmt::format("{} of {}: {}, {} blocks", i + 1, choices.size(), name(choice.algorithm),
                           choice.blocks));
    }
    std::optional<int> blocks;
    if (choice.algorithm != Algorithm::copy) blocks = choice.blocks;
    const bench::AlgorithmOverride forced(std::string(name(choice.algorithm)), blocks);
    group.run([&](const Communicator& communicator) {
      if (communicator.size() > 1 && communicator.transport() != "p2p") {
        throw NotSupported(fmt::format(
            "expected ranks that reach each other's memory, but they use {}; there is no choice of "
            "algorithms",
            communicator.transport()));
      }
      run_rank(
          communicator, options, choice, group.device_name(),
          [&](const bench::Case& what, const bench::CaseResult& result) {
            bench::Row row = row_of(what, choice, result, group.ranks());
            if (result.wrong.value_or(0) > 0) {
              progress(fmt::format("WRONG: {} elements of {} {} bytes by {}", *result.wrong,
                                   row.operation, row.bytes, row.variant));
            }
            if (result.timing.batches > 0) {
              findings.samples[what.kind].push_back({what.bytes, choice, result.timing.p50_us});
            }
            findings.report.rows.push_back(std::move(row));
          });
    });
  }
  return findings;
}

std::string table_text(const Findings& findings, const std::string& present) {
  const std::string& device = findings.report.device;
  const int ranks = findings.report.ranks;
  // What was not measured stays as it is chosen now, in the file or else by the library.
  Json base;
  std::vector<Json> others;
  for (Json& table : tables_of(present)) {
    if (table.at("device") == device && table.at("ranks") == ranks) {
      base = std::move(table);
    } else {
      others.push_back(std::move(table));
    }
  }
  if (base.is_null()) {
    base = Json::parse(Selector::load(ranks, device).to_json());
    base.set("device", device);
    base.set("ranks", ranks);
  }
  Selector selector = Selector::parse(base.dump(), ranks, device);
  for (const auto& [kind, samples] : findings.samples) {
    std::vector<Sample> registered;
    std::vector<Sample> any;
    for (const Sample& sample : samples) {
      (needs_registration(sample.choice.algorithm) ? registered : any).push_back(sample);
    }
    std::vector<SelectorRow> rows = choose_rows(any);
    if (!rows.empty()) selector.set(kind, std::move(rows));
    if (!registered.empty()) {
      selector.set(kind, choose_registered_rows(registered, any), /*registered=*/true);
    }
  }
  if (others.empty()) return selector.to_json();
  others.push_back(Json::parse(selector.to_json()));
  const auto device_of = [](const Json& table) { return table.at("device").as<std::string>(); };
  const auto ranks_of = [](const Json& table) { return table.at("ranks").as<int>(); };
  std::stable_sort(others.begin(), others.end(), [&](const Json& a, const Json& b) {
    return std::pair(device_of(a), ranks_of(a)) < std::pair(device_of(b), ranks_of(b));
  });
  std::string text;
  for (const Json& table : others) {
    const Selector one = Selector::parse(table.dump(), ranks_of(table), device_of(table));
    text += (text.empty() ? "[" : ",\n") + one.to_json();
    text.pop_back();  // the end of the line
  }
  return text + "]\n";
}

}  // namespace gantry::tune
