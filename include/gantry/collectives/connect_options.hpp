#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <gantry/device/device.hpp>

namespace gantry {

class StoreServer;

/// The place of one rank in a group that no launcher describes: see Communicator::connect().
/// @since 0.3
struct ConnectOptions {
  /// Where the ranks meet, equal on all of them: "tcp:HOST:PORT", or "unix:@NAME" on one machine.
  std::string address;
  /// Rank of the caller, 0 to size - 1. With `elastic` also -1: any rank that has no process.
  int rank = 0;
  /// Number of ranks, equal on all of them.
  int size = 1;
  /// Secret of the ranks, at least 16 bytes. Required for "tcp:".
  std::string token = {};
  /// Device of the caller. None: its current device.
  std::optional<Device> device = {};
  /// True lets rank 0 listen at `address`. False on rank 0 if another process listens there.
  bool serves = true;
  /// A server that this process has started at `address`, see <gantry/extend/store.hpp>. The group
  /// of the caller keeps it. Null: rank 0 starts one, if it serves.
  std::shared_ptr<StoreServer> server = {};
  /// Name of the group, see Communicator::name(); equal on all ranks. Empty: "connect".
  std::string name = {};
  /// Deadline of connect(), and of the group's operations: see Communicator::set_timeout(). 0:
  /// GANTRY_COLL_TIMEOUT.
  std::chrono::milliseconds timeout = {};
  /// True lets new processes take the places of lost ranks; equal on all ranks. A process that is
  /// started again makes the same call as its predecessor: see Communicator::connect().
  bool elastic = false;
};

}  // namespace gantry
