#include "tools/tune/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"
#include "tools/bench/operation.hpp"

namespace gantry::tune {

namespace {

constexpr const char* kFooter = R"(
  gantry-tune --output table.json              # every visible device, in this process
  mpirun -n 8 gantry-tune --output table.json  # one process per device
  GANTRY_COLL_TABLE=table.json program         # takes what was found

Exit code: 0; 1 if a result was wrong, which is then left out; 2 for errors.)";

bool is_tunable(CollectiveKind kind) {
  return kind != CollectiveKind::barrier && kind != CollectiveKind::send;
}

std::vector<CollectiveKind> read_operations(const std::vector<std::string>& names) {
  std::vector<CollectiveKind> kinds;
  for (const std::string& text : names) {
    if (text == "all") {
      for (const CollectiveKind kind : bench::operations()) {
        if (is_tunable(kind)) kinds.push_back(kind);
      }
      continue;
    }
    const CollectiveKind kind = bench::parse_operation(text);
    if (!is_tunable(kind)) {
      throw InvalidArgument(fmt::format(
          "--op: expected an operation with a choice of algorithms, but got '{}'", text));
    }
    kinds.push_back(kind);
  }
  return kinds;
}

std::vector<Algorithm> read_algorithms(const std::vector<std::string>& names) {
  std::vector<Algorithm> algorithms;
  for (const std::string& text : names) {
    Selector selector;
    selector.rule(text, "--algo");
    if (selector.forced() == Algorithm::automatic) {
      throw InvalidArgument(fmt::format("--algo: expected algorithms, but got '{}'", text));
    }
    algorithms.push_back(selector.forced());
  }
  return algorithms;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  options.repetitions = {.calls = 20, .batches = 7, .warm_up = 5, .max_seconds = 0.2};
  std::vector<std::string> operations{"all"};
  std::vector<std::string> algorithms;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm == Algorithm::nccl || algorithm == Algorithm::host) continue;
    algorithms.emplace_back(name(algorithm));
  }
  std::string begin = "64";
  std::string end = "64M";
  std::string dtype = "f32";
  double factor = 2;
  bool quick = false;
  CommandLine line("Measures the algorithms of collectives and writes the table that chooses them.",
                   "gantry-tune");
  line.set_footer(kFooter);
  line.add_option("-o,--op", operations, "operations (all)").value("OP,…").comma_separated();
  line.add_option("-a,--algo", algorithms,
                  fmt::format("algorithms ({})", fmt::join(algorithms, ",")))
      .value("ALGO,…")
      .comma_separated();
  line.add_option("--blocks", options.blocks, "thread blocks (4,8,16,32,64)")
      .value("N,…")
      .comma_separated()
      .range(1, kMostTableBlocks);
  const CommandLineOption begins =
      line.add_option("-b,--begin", begin, "least size of a message (64)").value("BYTES");
  const CommandLineOption ends =
      line.add_option("-e,--end", end, "greatest size (64M)").value("BYTES");
  const CommandLineOption factors =
      line.add_option("-f,--factor", factor, "from one size to the next (2)");
  line.add_option("-d,--dtype", dtype, "element type (f32)").value("TYPE");
  line.add_option("-g,--gpus", options.devices, "devices of this process (all; 1 per process)")
      .range(1, 64);
  line.add_option("-n,--iters", options.repetitions.calls, "calls timed together (20)")
      .range(1, 1'000'000);
  line.add_option("--batches", options.repetitions.batches, "such batches; their median counts (7)")
      .range(1, 1'000'000);
  line.add_option("--max-seconds", options.repetitions.max_seconds, "of one measurement (0.2)")
      .value("S")
      .greater_than_zero();
  line.add_flag("--eager", options.eager, "times calls, not graphs of them");
  line.add_flag("--quick", quick, "fewer sizes, blocks and calls: up to 16M by 4, 8 and 32 blocks");
  const CommandLineOption output =
      line.add_option("-O,--output", options.output, "the file to write (stdout)")
          .value("FILE", ValueKind::file);
  line.add_flag("--merge", options.merge, "keeps the file's tables for other machines")
      .needs(output);
  line.add_option("-J,--samples", options.samples, "writes every measurement as JSON")
      .value("FILE", ValueKind::file);
  line.add_flag("-q,--quiet", options.quiet, "no progress");
  options.text = line.parse(arguments);
  if (!options.text.empty()) return options;
  if (quick) {
    if (!begins.is_given()) begin = "256";
    if (!ends.is_given()) end = "16M";
    if (!factors.is_given()) factor = 4;
    if (options.blocks.empty()) options.blocks = {8, 32};
    options.repetitions.batches = std::min(options.repetitions.batches, 3);
    options.repetitions.max_seconds = std::min(options.repetitions.max_seconds, 0.05);
  }
  if (options.blocks.empty()) options.blocks = {4, 8, 16, 32, 64};
  options.dtype = parse_dtype(dtype);
  options.operations = read_operations(operations);
  options.algorithms = read_algorithms(algorithms);
  options.sizes =
      bench::sizes_between(parse_size(begin, "--begin"), parse_size(end, "--end"), factor, 0);
  return options;
}

}  // namespace gantry::tune
