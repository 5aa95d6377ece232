#include "tools/bench/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "collectives/selection/selector.hpp"
#include "command_line/command_line.hpp"
#include "tools/bench/comm_bench.hpp"

namespace gantry::bench {

namespace {

constexpr const char* kFooter = R"(
Alone, it makes one rank of every visible device, each in a thread; under glaunch, mpirun and the
like every process is one rank, with one device.

  gantry-bench -o all_reduce -b 8 -e 128M -f 2
  gantry-bench -o all -d bf16 --algo auto,ll,one_shot -G 20 -J results.json --svg results.svg
  mpirun -n 8 gantry-bench -o all_gather -J gantry.json --svg both.svg --compare nccl.json
  gantry-bench --model machines.json --ranks 8,64,1024 -o all_reduce -a auto,host
  gantry-bench --comm -o broadcast,reduce_add -e 256M

Exit code: 0; 1 if an element was wrong; 2 for errors; 3 if nothing was
measured.)";

// The texts of the command line, before they are looked at.
struct Words {
  std::vector<std::string> operations{"all_reduce"};
  std::vector<std::string> algorithms;
  std::string transport;
  std::string begin = "8";
  std::string end = "128M";
  std::string step;
  double factor = 2;
  std::string dtype = "f32";
  std::string redop = "sum";
  bool comm = false;
  bool graph_only = false;
};

void add_options(CommandLine& line, Options& options, Words& words) {
  line.add_option(
          "-o,--op", words.operations,
          "operations, or all: all_reduce reduce broadcast all_gather reduce_scatter gather "
          "scatter all_to_all send_recv barrier (all_reduce)")
      .value("OP,…")
      .comma_separated();
  const CommandLineOption comm =
      line.add_flag("--comm", words.comm, "operations of one process, gantry::comm");
  line.add_option("-b,--begin", words.begin, "least size of a message (8)").value("BYTES");
  line.add_option("-e,--end", words.end, "greatest size (128M)").value("BYTES");
  const CommandLineOption factor =
      line.add_option("-f,--factor", words.factor, "from one size to the next (2)").value("X");
  line.add_option("-i,--step", words.step, "the same, in bytes").value("BYTES").excludes(factor);
  line.add_option("-d,--dtype", words.dtype, "element type: f32 u16 …, float half … (f32)")
      .value("TYPE");
  line.add_option("-r,--redop", words.redop, "sum prod min max avg band bor bxor (sum)")
      .value("OP");
  line.add_option("--root", options.root, "root rank (0)")
      .value("R")
      .range(0, std::numeric_limits<int>::max());
  // Options of measurements, which a model has not.
  std::vector<CommandLineOption> measured{comm};
  measured.push_back(
      line.add_option("-g,--gpus", options.devices, "devices of this process (all; 1 per process)")
          .range(1, 64));
  measured.push_back(
      line.add_option("-n,--iters", options.repetitions.calls, "calls timed together (20)")
          .range(1, 1'000'000));
  measured.push_back(line.add_option("--batches", options.repetitions.batches,
                                     "such batches; p50, p99 are theirs (10)")
                         .range(1, 1'000'000));
  measured.push_back(line.add_option("-w,--warmup", options.repetitions.warm_up, "calls before (5)")
                         .range(0, 1'000'000));
  measured.push_back(line.add_option("--max-seconds", options.repetitions.max_seconds,
                                     "of one size: fewer calls if they would last longer (2)")
                         .value("S")
                         .greater_than_zero());
  measured.push_back(line.add_option("-z,--blocking", options.repetitions.blocking,
                                     "1: the host waits for each call (0)"));
  measured.push_back(
      line.add_option("-c,--check", options.check, "0: does not compare results (1)"));
  measured.push_back(
      line.add_option("-G,--graph", options.graph_calls, "measures graphs of so many calls, too")
          .range(1, 10'000));
  measured.push_back(
      line.add_flag("--graph-only", words.graph_only, "no eager calls beside --graph"));
  line.add_option("-a,--algo", words.algorithms,
                  "auto p2p " + algorithm_names(" ") +
                      "; several give a line each (auto, or GANTRY_COLL_ALGO)")
      .value("ALGO,…")
      .comma_separated();
  line.add_option("--transport", words.transport, "auto p2p nccl host")
      .one_of({"auto", "p2p", "nccl", "host"});
  line.add_option("--blocks", options.blocks, "thread blocks of the kernels, with one --algo")
      .range(1, kMostTableBlocks);
  line.add_flag("-R,--register", options.registered,
                "tensors that others read or write are registered on all ranks");
  measured.push_back(
      line.add_option("--tensors", options.tensors, "tensors of a coalesced form (200)")
          .range(1, 100'000));
  line.add_option("-J,--json", options.json, "writes the results, - for stdout")
      .value("FILE", ValueKind::file);
  line.add_option("--svg", options.svg, "draws latency and bandwidth")
      .value("FILE", ValueKind::file);
  line.add_option("--compare", options.compare, "results of other runs, drawn beside; repeatable")
      .value("FILE", ValueKind::file)
      .repeatable();
  measured.push_back(line.add_option("--draw", options.draw,
                                     "draws these results of an earlier run, measures nothing")
                         .value("FILE", ValueKind::file));
  CommandLineOption model =
      line.add_option("--model", options.model, "predicts times for machines of a file")
          .value("FILE", ValueKind::file);
  for (const CommandLineOption& option : measured) model.excludes(option);
  line.add_option("--ranks", options.ranks, "numbers of ranks of --model (all of its GPUs)")
      .value("N,…")
      .comma_separated()
      .needs(model);
  line.add_flag("-q,--quiet", options.quiet, "no table");
}

bool is_all(const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), "all") != names.end();
}

void read_operations(Options& options, const Words& words) {
  if (words.comm) {
    options.forms = is_all(words.operations) ? comm_forms() : words.operations;
    for (const std::string& form : options.forms) {
      if (std::find(comm_forms().begin(), comm_forms().end(), form) == comm_forms().end()) {
        throw InvalidArgument(fmt::format("--op: expected all or some of {}, but got '{}'",
                                          fmt::join(comm_forms(), ", "), form));
      }
    }
    if (options.graph_calls > 0 || !words.transport.empty() || words.algorithms.size() > 1 ||
        options.registered) {
      throw InvalidArgument(
          "--comm: expected neither --graph nor --transport nor --register nor several --algo");
    }
    return;
  }
  if (is_all(words.operations)) {
    options.operations = operations();
    return;
  }
  for (const std::string& text : words.operations) {
    options.operations.push_back(parse_operation(text));
  }
}

void read_algorithms(Options& options, const Words& words) {
  options.algorithms = words.algorithms;
  const char* const what = words.algorithms.empty() ? "GANTRY_COLL_ALGO" : "--algo";
  if (!words.transport.empty()) {
    if (!words.algorithms.empty()) {
      throw InvalidArgument("--transport: expected no --algo beside it");
    }
    options.algorithms = {words.transport};
  }
  if (options.algorithms.empty()) {
    options.algorithms = {env::get("GANTRY_COLL_ALGO").value_or("auto")};
  }
  for (const std::string& text : options.algorithms) {
    Selector selector;
    selector.rule(text, what);
    if (options.blocks &&
        (selector.forced() == Algorithm::automatic || selector.forced() == Algorithm::copy)) {
      throw InvalidArgument(
          fmt::format("--blocks: expected an algorithm beside it (--algo), but got {}", text));
    }
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  Words words;
  CommandLine line("Measures collective operations, as nccl-tests does, and checks their results.",
                   "gantry-bench");
  line.set_footer(kFooter);
  add_options(line, options, words);
  line.set_common({"--op", "--comm", "--begin", "--end", "--factor", "--dtype", "--redop", "--gpus",
                   "--iters", "--graph", "--algo", "--json", "--svg", "--model"});
  options.text = line.parse(arguments);
  if (!options.text.empty()) return options;
  options.dtype = parse_element_type(words.dtype);
  options.op = parse_reduce_op(words.redop);
  options.eager = !words.graph_only;
  if (words.graph_only && options.graph_calls == 0) {
    throw InvalidArgument("--graph-only: expected --graph beside it");
  }
  if (!options.draw.empty() && (options.svg.empty() || !options.json.empty())) {
    throw InvalidArgument("--draw: expected --svg beside it, and no --json");
  }
  read_operations(options, words);
  read_algorithms(options, words);
  const std::int64_t step = words.step.empty() ? 0 : parse_size(words.step, "--step");
  if (!words.step.empty() && step == 0) {
    throw InvalidArgument("--step: expected a number of bytes greater than 0, but got 0");
  }
  options.sizes = sizes_between(parse_size(words.begin, "--begin"), parse_size(words.end, "--end"),
                                words.factor, step);
  return options;
}

std::vector<Case> cases_of(const Options& options, CollectiveKind kind, int ranks) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : options.sizes) {
    Case made = make_case(kind, options.dtype, options.op, options.root, bytes, ranks);
    made.registered = options.registered;
    if (cases.empty() || made.count != cases.back().count) cases.push_back(made);
  }
  return cases;
}

}  // namespace gantry::bench
