#include "launcher/run/processes/arrivals.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "launcher/command/rank_list.hpp"

namespace gantry::launcher {
namespace {

constexpr std::chrono::seconds kConnectTimeout{60};
// Nodes of a large allocation may start minutes apart.
constexpr std::chrono::minutes kArrivalTimeout{10};

std::string arrival_key(int rank) { return fmt::format("glaunch/here/{}", rank); }

}  // namespace

void arrive_and_wait(const ProcessIdentity& identity, const std::string& host) {
  try {
    StoreClient store(StoreClientOptions{.address = identity.rendezvous,
                                         .rank = -1,
                                         .token = identity.rendezvous_token,
                                         .connect_timeout = kConnectTimeout});
    store.set(arrival_key(identity.rank), host);
    store.barrier("glaunch/here", identity.world_size, kArrivalTimeout);
  } catch (const TimeoutError& error) {
    throw Error(fmt::format(
        "shim: rank {} on {} failed to meet the other ranks at {}: {}; open that port, or set "
        "GANTRY_HOST_INTERFACE where glaunch runs to an interface that {} reaches",
        identity.rank, host, identity.rendezvous, error.what(), host));
  }
}

std::vector<int> missing_ranks(const std::string& address, const std::string& token, int ranks) {
  StoreClient store(StoreClientOptions{.address = address, .token = token});
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!store.try_get(arrival_key(rank))) missing.push_back(rank);
  }
  return missing;
}

void enter_missing_ranks(JobResult& job, const Delegation& delegation,
                         const std::vector<int>& missing) {
  const RankResult& launcher = job.ranks.front();
  job.outcome = Outcome::not_started;
  job.start_error = fmt::format(
      "{} {} before rank{} {} on {} had started; its messages are above; each host must be "
      "reachable from here and have {}",
      delegation.launcher, launcher.how(), missing.size() == 1 ? "" : "s", rank_list(missing),
      fmt::join(delegation.hosts_of(missing), ", "), delegation.glaunch);
  // The shim's own codes say more: no such program, for one.
  const bool is_shims = launcher.exit_code == 126 || launcher.exit_code == 127;
  job.start_error_code = is_shims ? launcher.exit_code : 125;
}

}  // namespace gantry::launcher
