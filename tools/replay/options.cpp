#include "tools/replay/options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "command_line/command_line.hpp"
#include "tools/replay/backend.hpp"

namespace gantry::replay {
namespace {

constexpr int kMostDevices = 64;  // simulated ones; no machine has as many GPUs

constexpr const char* kFooter = R"(
Inputs: a RMM log (.csv), a memory snapshot of torch or gantry (.pickle, .json), a replay dump;
or --workload:
  rmm:N,MAXMIB                  RMM's random_allocations, N = 1000 … 100000, MAXMIB = 1 … 4096
  training[:key=value,…]        a training loop; layers=32 steps=50 jitter=0.5 activation-mib=32
                                layer-mib=48 seed=1
  liveset:N[,key=value]         N random live blocks, 512 B to 8 MiB; replacements=100000 seed=1

  gantry-replay snapshot.pickle
  gantry-replay --workload rmm:10000,64 --compare --picture rmm.svg --simulate 32GiB
  gantry-replay log.csv --backend vmm --limit-factor 1.05

Exit code: 0 if every backend that could be measured ran without out of memory and without leaks,
1 if one did not or none could be measured, 2 for errors of the command line or the input.)";

void add_backends(std::vector<std::string>& backends, const std::vector<std::string>& added) {
  for (const std::string& name : added) {
    const auto& known = backend_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw InvalidArgument(
          fmt::format("--backend: expected one of {}, but got '{}'", fmt::join(known, ", "), name));
    }
    if (std::find(backends.begin(), backends.end(), name) == backends.end()) {
      backends.push_back(name);
    }
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line("Replays a program's allocations through gantry's allocators and measures them.",
                   "gantry-replay");
  line.set_footer(kFooter);
  std::vector<std::string> backends;
  bool compare = false;
  std::string limit;
  std::string simulate;
  std::string threads = "one";
  line.add_option("FILE", options.file, "the log to replay");
  line.add_option("-w,--workload", options.workload, "a synthetic workload instead of a file")
      .value("SPEC");
  line.add_option("-b,--backend", backends,
                  "vmm, native, async, cuda (the driver's malloc), bump (no allocator); repeatable")
      .value("NAME,…")
      .comma_separated();
  line.add_flag("-c,--compare", compare, "all backends, each in a process of its own");
  line.add_option("-d,--device", options.device, "the device to run on (0)")
      .range(0, kMostDevices - 1);
  line.add_option("--log-device", options.log_device,
                  "the device of the snapshot to replay (the first with a history)")
      .value("N");
  const CommandLineOption limited =
      line.add_option("--limit", limit, "the allocator may hold no more, such as 8GiB")
          .value("BYTES");
  line.add_option("--limit-factor", options.limit_factor, "the same, in multiples of the peak live")
      .excludes(limited);
  line.add_option("--threads", threads, "as-logged: one thread per logged one, in logged order")
      .one_of({"one", "as-logged"});
  line.add_option("-r,--repeat", options.repeat, "passes after the first one (5)")
      .range(0, 100'000);
  line.add_option("--max-seconds", options.max_seconds, "gives up a pass that lasts longer (60)")
      .value("S")
      .greater_than_zero();
  line.add_option("-s,--simulate", simulate, "on a simulated device with that much memory")
      .value("BYTES");
  line.add_option("-j,--json", options.json, "writes the results, - for stdout")
      .value("FILE", ValueKind::file);
  line.add_option("-p,--picture", options.picture, "draws them: a file .svg or .html")
      .value("FILE", ValueKind::file);
  line.add_option("--dump", options.dump,
                  "writes the sequence for other programs; measures only with --backend")
      .value("FILE", ValueKind::file);
  line.add_flag("-q,--quiet", options.quiet, "no table");

  options.text = line.parse(arguments);
  if (!options.text.empty()) return options;
  if (options.file.empty() == options.workload.empty()) {
    throw InvalidArgument("expected either a FILE or --workload (see --help)");
  }
  add_backends(options.backends, backends);
  if (compare) add_backends(options.backends, backend_names());
  if (options.backends.empty() && options.dump.empty()) options.backends = {"vmm"};
  options.threads_as_logged = threads == "as-logged";
  if (!limit.empty()) options.limit_bytes = env::parse_bytes(limit, "--limit");
  if (options.limit_bytes && *options.limit_bytes == 0) {
    throw InvalidArgument("--limit: expected a number of bytes greater than 0, but got 0");
  }
  if (!simulate.empty()) options.simulate_bytes = env::parse_bytes(simulate, "--simulate");
  if (options.limit_factor && !(*options.limit_factor >= 1 && *options.limit_factor <= 1000)) {
    throw InvalidArgument(fmt::format(
        "--limit-factor: expected a number from 1 to 1000, but got {}", *options.limit_factor));
  }
  if (!options.picture.empty() && !options.picture.ends_with(".svg") &&
      !options.picture.ends_with(".html")) {
    throw InvalidArgument(
        fmt::format("--picture: expected a file .svg or .html, but got '{}'", options.picture));
  }
  return options;
}

}  // namespace gantry::replay
