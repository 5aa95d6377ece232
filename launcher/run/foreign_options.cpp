#include "launcher/run/foreign_options.hpp"

#include <initializer_list>
#include <string>

#include "command_line/command_line.hpp"

namespace gantry::launcher {
namespace {

struct ForeignOptions {
  std::initializer_list<const char*> names;
  const char* hint;
};

constexpr ForeignOptions kForeign[] = {
    {{"--nprocs", "--ntasks", "--num-processes", "--procs", "-c"},
     "use -n N for the number of ranks"},
    {{"--num-gpus", "--gpus-per-node", "--include", "--exclude"},
     "use --gpus best:N, or a list such as --gpus 0,2"},
    {{"--gpus-per-task", "--gpus-per-rank"}, "every rank gets one GPU"},
    {{"--nnodes", "--node-rank", "--nodes", "--num-nodes", "--ntasks-per-node", "-N", "--npernode",
      "-npernode"},
     "use --hosts A:4,B:4 or --hostfile for several machines; one glaunch starts them all"},
    {{"--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--master-addr",
      "--master-port", "--local-addr"},
     "leave it out: glaunch always serves its own rendezvous"},
    {{"--bind-to", "-bind-to", "--cpu-bind", "--bind-cores-to-rank", "-bind-to-core"},
     "use --bind auto, numa, core or none, or CPUs such as --bind 0-3:4-7"},
    {{"--numa-binding", "--numa"}, "use --bind numa"},
    {{"--mem-bind"}, "use --mem prefer, bind or none"},
    {{"--map-by", "-map-by", "--rank-by", "--distribution"},
     "use --bind and --order to place ranks"},
    {{"--oversubscribe", "-oversubscribe", "--overcommit", "--use-hwthread-cpus"},
     "use --ranks-per-device K for ranks that share a device, or --cpu-only -n N"},
    {{"--redirects", "-r", "--output-filename"}, "use --log-dir DIR"},
    {{"--tag-output", "--label", "-l", "--output"}, "use --prefix TEXT, --log-dir DIR or --tee"},
    {{"--kill-on-bad-exit", "--no-kill", "--monitor-interval", "--start-method", "--mca", "-mca",
      "--no-python", "--module", "-m"},
     "leave it out: glaunch starts any program, and stops the others when one fails"},
};

}  // namespace

void add_foreign_options(CommandLine& line) {
  for (const ForeignOptions& foreign : kForeign) {
    for (const char* const name : foreign.names) line.add_hint(name, foreign.hint);
  }
}

}  // namespace gantry::launcher
