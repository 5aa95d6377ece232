// Ranks as processes of their own that meet without a launcher.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/flight_folder.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::testing {

/// What ranks run and where they meet.
struct RankCommand {
  int ranks = 2;
  std::vector<std::string> argv = {};
  std::map<std::string, std::optional<std::string>> environment = {};
  std::string address = {};  ///< empty: a socket of this group's own
  std::chrono::milliseconds timeout = std::chrono::seconds(100);
  bool is_simulated = true;  ///< else ranks take the real GPUs
  bool shares_device =
      false;               ///< all ranks use device 0. NCCL takes them for ranks on several hosts
  bool is_spread = false;  ///< gantry takes them for ranks on several hosts, too
  int ranks_per_host = 1;  ///< if they are spread
};

/// Started ranks, which end with this object. Each has one device, its own unless they share one.
class RankProcesses {
 public:
  explicit RankProcesses(RankCommand command) {
    static int groups = 0;
    if (command.address.empty()) {
      command.address =
          "unix:@gantry-ranks-" + std::to_string(getpid()) + "-" + std::to_string(groups);
    }
    ++groups;
    std::map<std::string, std::optional<std::string>>& environment = command.environment;
    environment["GANTRY_RDZV"] = command.address;
    environment["GANTRY_SIM_DEVICES"] =
        command.is_simulated ? std::optional(std::to_string(command.ranks)) : std::nullopt;
    environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(command.ranks);
    for (int rank = 0; rank < command.ranks; ++rank) {
      environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
      const std::string host = "host-" + std::to_string(rank / command.ranks_per_host);
      if (command.shares_device) {
        environment["LOCAL_RANK"] = "0";
        environment["LOCAL_WORLD_SIZE"] = "1";
      }
      if (command.is_spread) environment["GANTRY_BOOT_ID"] = host;
      // NCCL refuses two ranks of one host on one GPU. Ranks on several hosts it connects by
      // sockets, as it does not while it sees one.
      if (command.shares_device || command.is_spread) environment["NCCL_HOSTID"] = host;
      processes_.emplace_back(
          Command{.argv = command.argv, .environment = environment, .timeout = command.timeout});
    }
  }

  Subprocess& operator[](int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(processes_.size()); }
  /// Lets a rank go on that waits for it.
  void go(int rank) { (*this)[rank].send_signal(SIGUSR1); }
  void kill(int rank) { (*this)[rank].send_signal(SIGKILL); }
  /// As Subprocess::wait_for_output(), with a bound for what must come soon.
  bool says(int rank, const std::string& text,
            std::chrono::milliseconds within = std::chrono::seconds(60)) {
    return (*this)[rank].wait_for_output(text, within);
  }

 private:
  std::vector<Subprocess> processes_;
};

}  // namespace gantry::testing
