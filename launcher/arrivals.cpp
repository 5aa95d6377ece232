#include "launcher/arrivals.hpp"

#include <fmt/format.h>

#include <chrono>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "core/socket.hpp"

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
  StoreClient store(StoreClientOptions{
      .address = fmt::format("tcp:127.0.0.1:{}", parse_socket_address(address).port),
      .token = token});
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!store.try_get(arrival_key(rank))) missing.push_back(rank);
  }
  return missing;
}

}  // namespace gantry::launcher
