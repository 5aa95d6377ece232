#include <gantry/core/env.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry::env {

const std::vector<Variable>& variables() {
  static const auto& kVariables = *new std::vector<Variable>{
      {"GANTRY_SIM_DEVICES", "1..64", "use this many simulated devices, even where GPUs exist"},
      {"GANTRY_SIM_MEMORY", "bytes (1G)", "memory of each simulated device"},
      {"GANTRY_SIM_STREAM_MEMORY", "bytes (0)",
       "memory of its device that each created stream takes, as streams of GPUs do"},
      {"GANTRY_SIM_SCHEDULE", "earliest|latest|seed",
       "order in which simulated devices run tasks; unset: as soon as they can, side by side"},
      {"GANTRY_SYNC_DEBUG", "off|warn|error (off)",
       "what happens at calls that block the host until a device has done its work"},
      {"GANTRY_LAUNCH_BLOCKING", "0|1 (0)",
       "as CUDA_LAUNCH_BLOCKING, which it sets where CUDA is not initialised before"},
      {"CUDA_LAUNCH_BLOCKING", "0|1 (0)",
       "launches of kernels return when these are done, on simulated devices as on GPUs"},
      {"GANTRY_OVERLAPPED_LAUNCHES", "0|1 (1)",
       "small kernels are launched while the one ahead of them in the stream runs"},
      {"GANTRY_SANITIZER", "off|warn|throw (off)",
       "report accesses to one memory by two streams that nothing orders"},
      {"GANTRY_LOG", "trace|debug|info|warn|error|off (warn)", "lowest level written to stderr"},
      {"GANTRY_ALLOC_CONF", "key:value,…", "configuration of the caching allocator"},
      {"GANTRY_SNAPSHOT_TOOL", "path (gantry-snapshot)",
       "program that save_snapshot runs for .html and .pickle files"},
      {"GANTRY_TRACE", "path",
       "records a trace from the first use of a device on; {rank} and {pid} are replaced in it"},
      {"GANTRY_JIT_CACHE", "path (~/.cache/gantry/jit)",
       "folder of programs that jit::elementwise compiled, below XDG_CACHE_HOME if that is set; "
       "empty keeps none"},
      {"GANTRY_COLL_ALGO",
       "auto|p2p|ll|ll128|ll128_two_shot|one_shot|two_shot|ring|zero_copy|copy|nccl|host (auto)",
       "algorithm that collectives take wherever it can serve"},
      {"GANTRY_COLL_TABLE", "path", "table of gantry-tune that algorithms are chosen from"},
      {"GANTRY_COLL_TIMEOUT", "seconds (600)", "deadline of a collective operation"},
      {"GANTRY_FLIGHT_DIR", "path (/dev/shm)",
       "where groups keep the flight recorders that glaunch dump and gantry-top read"},
      {"GANTRY_HOST_LINKS", "auto|tcp|mpi (auto)",
       "what carries messages between hosts where ranks do not share memory"},
      {"GANTRY_HOST_INTERFACE", "name,…",
       "network interfaces whose addresses ranks on other machines connect to"},
      {"GANTRY_HOST_CRYPT", "off|on (off)",
       "on: what ranks send each other by TCP is encrypted; one of two ranks is enough"},
      {"GANTRY_P2P", "off|on|probe (probe)",
       "whether ranks of one machine use each other's device memory, or try it first; where it is "
       "unset, NCCL_P2P_DISABLE=1 means off"},
      {"GANTRY_BOOT_ID", "text", "tests: takes this process for one on a machine of that name"},
      {"GANTRY_RANK", "0..", "rank of this process, set by glaunch"},
      {"GANTRY_WORLD_SIZE", "1..", "number of processes, set by glaunch"},
      {"GANTRY_LOCAL_RANK", "0..", "rank among the processes of this node, set by glaunch"},
      {"GANTRY_LOCAL_SIZE", "1..", "number of processes on this node, set by glaunch"},
      {"GANTRY_NODE_RANK", "0..", "index of this node, set by glaunch"},
      {"GANTRY_NODE_COUNT", "1..", "number of nodes, set by glaunch"},
      {"GANTRY_DEVICE", "0..",
       "index of this rank's device among the visible ones, set by glaunch"},
      {"GANTRY_DEVICE_UUID", "text", "UUID of this rank's device, set by glaunch"},
      {"GANTRY_DEVICE_BUSID", "text", "PCI bus id of this rank's device, set by glaunch"},
      {"GANTRY_CPUS", "list", "CPUs that this rank is bound to, set by glaunch"},
      {"GANTRY_NUMA", "0..", "NUMA node whose memory this rank prefers, set by glaunch"},
      {"GANTRY_BIND", "auto|numa|core|none|list",
       "CPUs and memory that a rank binds itself to, under another launcher than glaunch"},
      {"GANTRY_TOPO_FILE", "path",
       "facts about the machine that are not found otherwise: gantry's JSON, hwloc's or NCCL's "
       "XML"},
      {"GANTRY_SYSFS_ROOT", "path (/sys)", "where PCI devices and processors are described"},
      {"GANTRY_NVML_PATH", "path", "libnvidia-ml.so.1 that is loaded instead of the system's"},
      {"GANTRY_JOB_ID", "text", "unique name of the job, set by glaunch"},
      {"GANTRY_RDZV", "unix:@name|unix:/path|tcp:host:port",
       "address of the job's key/value store, set by glaunch"},
      {"GANTRY_RDZV_TOKEN", "16 to 1024 bytes",
       "secret that the job's key/value store asks for, the same on all ranks; a tcp address needs "
       "it; set by glaunch"},
      {"GANTRY_LIFELINE_FD", "file descriptor", "pipe that closes when glaunch dies"},
      {"GANTRY_RESTART", "0..",
       "how often the job was restarted, or number of the replacement, set by glaunch"},
      {"GANTRY_ELASTIC", "MIN:MAX", "ranks of a job that replaces ranks, set by glaunch --elastic"},
      {"GANTRY_ERROR_FILE", "path", "where a rank writes what made it fail, set by glaunch"},
  };
  return kVariables;
}

std::optional<std::string> get(const char* name) {
  // None in a program with more rights than its caller, who chose the environment.
  const char* value = secure_getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::int64_t parse_int(std::string_view text, std::string_view what, std::int64_t min,
                       std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < min || value > max) {
    throw InvalidArgument(std::string(what) + ": expected a whole number from " +
                          std::to_string(min) + " to " + std::to_string(max) + ", but got '" +
                          std::string(text) + "'");
  }
  return value;
}

std::size_t parse_bytes(std::string_view text, std::string_view what) {
  const auto fail = [&]() -> std::size_t {
    throw InvalidArgument(std::string(what) +
                          ": expected a byte count such as 512M or 2GiB, but got '" +
                          std::string(text) + "'");
  };
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, value);
  if (status != std::errc{}) return fail();
  std::string_view suffix(end, static_cast<std::size_t>(last - end));
  int shift = 0;
  if (!suffix.empty() && suffix != "B") {
    switch (suffix.front()) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      default:
        return fail();
    }
    suffix.remove_prefix(1);
  }
  if (!suffix.empty() && suffix != "B" && suffix != "iB") return fail();
  if (value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return fail();
  return static_cast<std::size_t>(value << shift);
}

std::optional<std::int64_t> get_int(const char* name, std::int64_t min, std::int64_t max) {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_int(*text, name, min, max);
}

std::optional<std::size_t> get_bytes(const char* name) {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_bytes(*text, name);
}

bool get_bool(const char* name, bool fallback) {
  const auto text = get(name);
  if (!text || text->empty()) return fallback;
  if (*text == "1" || *text == "true" || *text == "on" || *text == "yes") return true;
  if (*text == "0" || *text == "false" || *text == "off" || *text == "no") return false;
  throw InvalidArgument(std::string(name) +
                        ": expected 1/0, true/false, on/off or yes/no, but got '" + *text + "'");
}

}  // namespace gantry::env
