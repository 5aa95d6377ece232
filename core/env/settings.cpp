#include "core/env/settings.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/files/socket.hpp"

namespace gantry::env {
namespace {

constexpr std::int64_t kMostProcesses = 1 << 20;
constexpr std::int64_t kMostDescriptor = std::numeric_limits<int>::max();

void check_directory(const char* name, const std::string& path) {
  struct stat facts {};
  const bool exists = stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) return;
  throw InvalidArgument(fmt::format("{}: expected a directory, but got '{}': {}", name, path,
                                    std::strerror(exists ? ENOTDIR : errno)));
}

void check_address(const char* name, const std::string& address) {
  try {
    static_cast<void>(parse_socket_address(address));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", name, error.what()));
  }
}

void check_schedule(const char* name, const std::string& value) {
  if (value == "earliest" || value == "latest") return;
  try {
    static_cast<void>(parse_int(value, name, 0, std::numeric_limits<std::int64_t>::max()));
  } catch (const InvalidArgument&) {
    throw InvalidArgument(
        fmt::format("{}: expected earliest, latest or a whole number, but got '{}'", name, value));
  }
}

}  // namespace

constinit const NumberSetting kSimDevices{"GANTRY_SIM_DEVICES", 1, 64, "1..64",
                                          "use this many simulated devices, even where GPUs exist"};
constinit const BytesSetting kSimMemory{"GANTRY_SIM_MEMORY", "bytes (1G)",
                                        "memory of each simulated device"};
constinit const BytesSetting kSimStreamMemory{
    "GANTRY_SIM_STREAM_MEMORY", "bytes (0)",
    "memory of its device that each created stream takes, as streams of GPUs do"};
constinit const TextSetting kSimSchedule{
    "GANTRY_SIM_SCHEDULE", "earliest|latest|seed",
    "order in which simulated devices run tasks; unset: as soon as they can, side by side",
    check_schedule};
constinit const ChoiceSetting kSyncDebug{
    "GANTRY_SYNC_DEBUG", "off|warn|error (off)",
    "what happens at calls that block the host until a device has done its work"};
constinit const SwitchSetting kLaunchBlocking{
    "GANTRY_LAUNCH_BLOCKING", false, "0|1 (0)",
    "as CUDA_LAUNCH_BLOCKING, which it sets where CUDA is not initialised before"};
constinit const SwitchSetting kCudaLaunchBlocking{
    "CUDA_LAUNCH_BLOCKING", false, "0|1 (0)",
    "launches of kernels return when these are done, on simulated devices as on GPUs"};
constinit const SwitchSetting kOverlappedLaunches{
    "GANTRY_OVERLAPPED_LAUNCHES", true, "0|1 (1)",
    "small kernels are launched while the one ahead of them in the stream runs"};
constinit const ChoiceSetting kSanitizer{
    "GANTRY_SANITIZER", "off|warn|throw (off)",
    "report accesses to one memory by two streams that nothing orders"};
constinit const ChoiceSetting kLog{"GANTRY_LOG", "trace|debug|info|warn|error|off (warn)",
                                   "lowest level written to stderr"};
constinit const ChoiceSetting kCpuCapability{
    "GANTRY_CPU_CAPABILITY", "default|avx2|avx512|avx512_bf16 (avx512_bf16)",
    "most that kernels of CPU tensors and simulated devices use of an x86 processor"};
constinit const TextSetting kAllocConf{"GANTRY_ALLOC_CONF", "key:value,…",
                                       "configuration of the caching allocator"};
constinit const TextSetting kSnapshotTool{
    "GANTRY_SNAPSHOT_TOOL", "path (gantry-snapshot)",
    "program that save_snapshot runs for .html and .pickle files"};
constinit const TextSetting kTrace{
    "GANTRY_TRACE", "path",
    "records a trace from the first use of a device on; {rank} and {pid} are replaced in it"};
constinit const TextSetting kJitCache{"GANTRY_JIT_CACHE", "path (~/.cache/gantry/jit)",
                                      "folder of programs that jit::elementwise compiled, below "
                                      "XDG_CACHE_HOME if that is set; empty keeps none"};
constinit const ChoiceSetting kCollAlgo{
    "GANTRY_COLL_ALGO",
    "auto|p2p|ll|ll128|ll128_two_shot|one_shot|two_shot|zero_copy|copy|nccl|host (auto)",
    "algorithm that collectives take wherever it can serve"};
constinit const TextSetting kCollTable{"GANTRY_COLL_TABLE", "path",
                                       "table of gantry-tune that algorithms are chosen from"};
constinit const SwitchSetting kCollOpen{
    "GANTRY_COLL_OPEN", true, "off|on (on)",
    "whether ranks use each other's arrays in place in large operations"};
constinit const NumberSetting kCollTimeout{"GANTRY_COLL_TIMEOUT", 1, 1'000'000, "seconds (600)",
                                           "deadline of a collective operation"};
constinit const TextSetting kFlightDir{
    "GANTRY_FLIGHT_DIR", "path (/dev/shm)",
    "where groups keep the flight recorders that glaunch dump and gantry-top read",
    check_directory};
constinit const ChoiceSetting kHostLinks{
    "GANTRY_HOST_LINKS", "auto|nccl|tcp|mpi (auto)",
    "what carries data between hosts where ranks do not share memory"};
constinit const TextSetting kHostInterface{
    "GANTRY_HOST_INTERFACE", "name,…",
    "network interfaces whose addresses ranks on other machines connect to"};
constinit const SwitchSetting kHostCrypt{
    "GANTRY_HOST_CRYPT", false, "off|on (off)",
    "on: what ranks send each other by TCP is encrypted; one of two ranks is enough"};
constinit const ChoiceSetting kP2p{
    "GANTRY_P2P", "off|on|probe (probe)",
    "whether ranks of one machine use each other's device memory, or try it first; where it is "
    "unset, NCCL_P2P_DISABLE=1 means off"};
constinit const TextSetting kNcclLibrary{
    "GANTRY_NCCL_LIBRARY", "path (libnccl.so.2)",
    "NCCL's library; on simulated devices one that takes these"};
constinit const SwitchSetting kNcclReport{
    "GANTRY_NCCL_REPORT", false, "0|1 (0)",
    "libgantry_nccl.so prints at exit how often each function of NCCL's was called"};
constinit const TextSetting kNcclFallback{
    "GANTRY_NCCL_FALLBACK", "path",
    "NCCL's library, which takes communicators that libgantry_nccl.so would carry over the hosts"};
constinit const TextSetting kBootId{"GANTRY_BOOT_ID", "text",
                                    "tests: takes this process for one on a machine of that name"};
constinit const NumberSetting kRank{"GANTRY_RANK", 0, kMostProcesses - 1, "0..",
                                    "rank of this process, set by glaunch"};
constinit const NumberSetting kWorldSize{"GANTRY_WORLD_SIZE", 1, kMostProcesses, "1..",
                                         "number of processes, set by glaunch"};
constinit const NumberSetting kLocalRank{"GANTRY_LOCAL_RANK", 0, kMostProcesses - 1, "0..",
                                         "rank among the processes of this node, set by glaunch"};
constinit const NumberSetting kLocalSize{"GANTRY_LOCAL_SIZE", 1, kMostProcesses, "1..",
                                         "number of processes on this node, set by glaunch"};
constinit const NumberSetting kNodeRank{"GANTRY_NODE_RANK", 0, kMostProcesses - 1, "0..",
                                        "index of this node, set by glaunch"};
constinit const NumberSetting kNodeCount{"GANTRY_NODE_COUNT", 1, kMostProcesses, "1..",
                                         "number of nodes, set by glaunch"};
constinit const NumberSetting kDevice{
    "GANTRY_DEVICE", 0, 1023, "0..",
    "index of this rank's device among the visible ones, set by glaunch"};
constinit const TextSetting kDeviceUuid{"GANTRY_DEVICE_UUID", "text",
                                        "UUID of this rank's device, set by glaunch"};
constinit const TextSetting kDeviceBusid{"GANTRY_DEVICE_BUSID", "text",
                                         "PCI bus id of this rank's device, set by glaunch"};
constinit const TextSetting kCpus{"GANTRY_CPUS", "list",
                                  "CPUs that this rank is bound to, set by glaunch"};
constinit const NumberSetting kNuma{"GANTRY_NUMA", 0, 1'000'000, "0..",
                                    "NUMA node whose memory this rank prefers, set by glaunch"};
constinit const TextSetting kBind{
    "GANTRY_BIND", "auto|numa|core|none|list",
    "CPUs and memory that a rank binds itself to, under another launcher than glaunch"};
constinit const TextSetting kTopoFile{
    "GANTRY_TOPO_FILE", "path",
    "facts about the machine that are not found otherwise: gantry's JSON, hwloc's or NCCL's XML"};
constinit const TextSetting kSysfsRoot{"GANTRY_SYSFS_ROOT", "path (/sys)",
                                       "where PCI devices and processors are described"};
constinit const TextSetting kNvmlPath{"GANTRY_NVML_PATH", "path",
                                      "libnvidia-ml.so.1 that is loaded instead of the system's"};
constinit const TextSetting kJobId{"GANTRY_JOB_ID", "text",
                                   "unique name of the job, set by glaunch"};
constinit const TextSetting kRdzv{"GANTRY_RDZV", "unix:@name|unix:/path|tcp:host:port",
                                  "address of the job's key/value store, set by glaunch",
                                  check_address};
constinit const TextSetting kRdzvToken{"GANTRY_RDZV_TOKEN", "16 to 1024 bytes",
                                       "secret that the job's key/value store asks for, the same "
                                       "on all ranks; a tcp address needs it; set by glaunch"};
constinit const NumberSetting kLifelineFd{"GANTRY_LIFELINE_FD", 0, kMostDescriptor,
                                          "file descriptor", "pipe that closes when glaunch dies"};
constinit const NumberSetting kRestart{
    "GANTRY_RESTART", 0, kMostProcesses - 1, "0..",
    "how often the job was restarted, or number of the replacement, set by glaunch"};
constinit const TextSetting kElastic{
    "GANTRY_ELASTIC", "MIN:MAX", "ranks of a job that replaces ranks, set by glaunch --elastic"};
constinit const TextSetting kErrorFile{"GANTRY_ERROR_FILE", "path",
                                       "where a rank writes what made it fail, set by glaunch"};

std::span<const Setting* const> settings() {
  static constexpr std::array<const Setting*, 50> kAll{&kSimDevices,
                                                       &kSimMemory,
                                                       &kSimStreamMemory,
                                                       &kSimSchedule,
                                                       &kSyncDebug,
                                                       &kLaunchBlocking,
                                                       &kCudaLaunchBlocking,
                                                       &kOverlappedLaunches,
                                                       &kSanitizer,
                                                       &kLog,
                                                       &kCpuCapability,
                                                       &kAllocConf,
                                                       &kSnapshotTool,
                                                       &kTrace,
                                                       &kJitCache,
                                                       &kCollAlgo,
                                                       &kCollTable,
                                                       &kCollOpen,
                                                       &kCollTimeout,
                                                       &kFlightDir,
                                                       &kHostLinks,
                                                       &kHostInterface,
                                                       &kHostCrypt,
                                                       &kP2p,
                                                       &kNcclLibrary,
                                                       &kNcclReport,
                                                       &kNcclFallback,
                                                       &kBootId,
                                                       &kRank,
                                                       &kWorldSize,
                                                       &kLocalRank,
                                                       &kLocalSize,
                                                       &kNodeRank,
                                                       &kNodeCount,
                                                       &kDevice,
                                                       &kDeviceUuid,
                                                       &kDeviceBusid,
                                                       &kCpus,
                                                       &kNuma,
                                                       &kBind,
                                                       &kTopoFile,
                                                       &kSysfsRoot,
                                                       &kNvmlPath,
                                                       &kJobId,
                                                       &kRdzv,
                                                       &kRdzvToken,
                                                       &kLifelineFd,
                                                       &kRestart,
                                                       &kElastic,
                                                       &kErrorFile};
  return kAll;
}

}  // namespace gantry::env
