#pragma once

#include <string>
#include <vector>

#include "core/files/socket.hpp"

namespace gantry {

using Socket = UniqueFd;

// Where the other ranks connect to a rank.
struct RankAddress {
  std::string cookie;   // 32 digits; rank 0's rejects unauthenticated connections
  std::string machine;  // boot id and network namespace: equal ones share the loopback interface
  int port = 0;
  std::vector<std::string> hosts;

  // The address as one line of text.
  std::string str() const;
  static RankAddress parse(const std::string& text);
  // The hosts that a rank of `machine` should try, in this order.
  std::vector<std::string> hosts_from(const std::string& machine) const;
};

// Listens at a port that the system picks, and sets `address`. Throws: Error.
Socket listen_anywhere(RankAddress& address);

}  // namespace gantry
