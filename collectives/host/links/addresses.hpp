#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/socket.hpp"

namespace gantry {

using Socket = UniqueFd;

// This machine, for processes that share its loopback interface: boot id and network namespace.
std::string this_machine();

// The user of this process as well: processes with equal texts recognise each other by SO_PEERCRED.
std::string this_machine_and_user();

// Where the other ranks connect to a rank.
struct RankAddress {
  std::string cookie;   // 32 digits, a part of the group's key
  std::string machine;  // see this_machine()
  int port = 0;
  // Its connections by TCP are encrypted: GANTRY_HOST_CRYPT.
  bool encrypts = false;
  // The addresses that it listens at, loopback ones among them. Or one abstract unix socket,
  // "@name".
  std::vector<std::string> hosts;

  // The address as one line of text.
  std::string str() const;
  static RankAddress parse(const std::string& text);
  // The hosts that a rank of `machine` should try, in this order.
  std::vector<std::string> hosts_from(const std::string& machine) const;
};

// Where the ranks of a group are.
enum class Neighbourhood : std::uint8_t {
  one_user,     // they have equal this_machine_and_user()
  one_machine,  // they have equal this_machine()
  machines,
};

// Listens, and sets `address`: for ranks of one user at a unix socket with a random name; else at
// one port that the system picks. For ranks of one machine that is at the loopback address, else at
// the addresses of the interfaces that GANTRY_HOST_INTERFACE names, else at every address. Throws:
// Error; InvalidArgument for a value of GANTRY_HOST_CRYPT.
std::vector<Socket> listen_for_ranks(RankAddress& address, Neighbourhood where);

// True if `host` is a unix socket's. The kernel tells who is at its other end, and nobody stands
// between.
bool is_unix_socket(std::string_view host);

}  // namespace gantry
