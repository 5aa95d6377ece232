// The cost of a meeting of many ranks: this process serves the store and starts the ranks, each of
// them a process on one of several pretended hosts.
//
//   rendezvous --ranks 1024 --hosts 16 --meet
//     four exchanges of values and a barrier at the store
//   rendezvous --ranks 1024 --hosts 16 --world
//     Communicator::world() on the host transport, and its host_barrier()
//
// One line of JSON: seconds from the first start to the end of the last rank, seconds of ranks that
// only start, requests of all ranks to the store, and the greatest memory of a rank and of this
// process, in MiB.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gantry/extend/store.hpp>
#include <gantry/gantry.hpp>
#include <gantry/job/process_identity.hpp>

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kDeadline{10};
constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

// As Communicator::world() does before it knows a device.
int meet() {
  const gantry::ProcessIdentity identity = gantry::detect_process_identity();
  gantry::StoreClient store(gantry::StoreClientOptions{
      .address = identity.rendezvous, .rank = identity.rank, .token = identity.rendezvous_token});
  const std::string value(100, 'x');
  const auto key = [&](int round) { return fmt::format("meet/{}/{}", round, identity.rank); };
  for (int round = 0; round < 4; ++round) {
    store.set(key(round), value);
    const auto all = store.gather(fmt::format("meet/{}", round), identity.world_size, kDeadline);
    if (!all || all->back() != value) throw gantry::Error("a value is missing");
    if (round > 0) store.erase(key(round - 1));
  }
  store.barrier("met", identity.world_size, kDeadline);
  return 0;
}

int make_world() {
  const gantry::Communicator world = gantry::Communicator::world();
  world.host_barrier();
  return 0;
}

struct Cost {
  double seconds = 0;
  double rank_mib = 0;
};

// Starts all ranks and waits for them.
Cost run(int ranks, int hosts, gantry::StoreServer& server, std::string what) {
  const int per_host = ranks / hosts;
  std::map<pid_t, int> running;
  const Clock::time_point begin = Clock::now();
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    const auto set = [&](const char* name, const std::string& value) {
      std::erase_if(variables, [prefix = fmt::format("{}=", name)](const std::string& variable) {
        return variable.starts_with(prefix);
      });
      variables.push_back(fmt::format("{}={}", name, value));
    };
    set("GANTRY_RANK", std::to_string(rank));
    set("GANTRY_WORLD_SIZE", std::to_string(ranks));
    set("GANTRY_LOCAL_RANK", std::to_string(rank % per_host));
    set("GANTRY_LOCAL_SIZE", std::to_string(per_host));
    set("GANTRY_NODE_RANK", std::to_string(rank / per_host));
    set("GANTRY_NODE_COUNT", std::to_string(hosts));
    set("GANTRY_JOB_ID", fmt::format("rendezvous-{}", getpid()));
    set("GANTRY_RDZV", server.address());
    set("GANTRY_RDZV_TOKEN", kToken);
    set("GANTRY_BOOT_ID", fmt::format("host{}", rank / per_host));
    set("GANTRY_SIM_DEVICES", std::to_string(per_host));
    set("GANTRY_COLL_ALGO", "host");
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string name = "rendezvous";
    std::vector<char*> arguments{name.data(), what.data(), nullptr};
    pid_t pid = -1;
    const int code =
        posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data());
    if (code != 0) throw gantry::Error(fmt::format("failed to start rank {}: {}", rank, code));
    running[pid] = rank;
  }
  Cost cost;
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    rusage usage{};
    const pid_t ended = wait4(-1, &status, 0, &usage);
    if (ended < 0) break;
    if (status != 0) {
      ++failed;
      server.mark_lost(running[ended]);  // the others must not wait for it
    }
    cost.rank_mib = std::max(cost.rank_mib, static_cast<double>(usage.ru_maxrss) / 1024);
  }
  cost.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (failed > 0) throw gantry::Error(fmt::format("{} of {} ranks failed", failed, ranks));
  return cost;
}

int measure(int ranks, int hosts, const std::string& what) {
  if (hosts < 1 || ranks < hosts || ranks % hosts != 0) {
    throw gantry::InvalidArgument("expected ranks that are a multiple of the hosts");
  }
  // Each rank has a connection to the store.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  gantry::StoreServer server(gantry::StoreServerOptions{
      .address = fmt::format("unix:@gantry-rendezvous-{}", getpid()), .token = kToken});
  const Cost start = run(ranks, hosts, server, "start");
  const Cost whole = run(ranks, hosts, server, what);
  // The last requests of ranks that have ended may be unread.
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
  while (!server.connected_ranks().empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  fmt::print(
      "{{\"ranks\": {}, \"hosts\": {}, \"seconds\": {:.3f}, \"start_seconds\": {:.3f}, "
      "\"requests\": {}, \"rank_mib\": {:.1f}, \"server_mib\": {:.1f}}}\n",
      ranks, hosts, whole.seconds, start.seconds, server.request_count(), whole.rank_mib,
      static_cast<double>(own.ru_maxrss) / 1024);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view what = argc < 2 ? "" : argv[argc - 1];
  if (argc == 2 && what == "start") return 0;
  if (argc == 2 && what == "--meet") return meet();
  if (argc == 2 && what == "--world") return make_world();
  const bool is_known = what == "--meet" || what == "--world";
  if (argc != 6 || std::string_view(argv[1]) != "--ranks" ||
      std::string_view(argv[3]) != "--hosts" || !is_known) {
    fmt::print(stderr, "usage: rendezvous --ranks N --hosts N --meet|--world\n");
    return 2;
  }
  return measure(std::atoi(argv[2]), std::atoi(argv[4]), std::string(what));
} catch (const std::exception& error) {
  fmt::print(stderr, "rendezvous: {}\n", error.what());
  return 2;
}
