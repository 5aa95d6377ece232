// The ranks of a measurement: processes of a launcher, or threads of this process.
#pragma once

#include <functional>
#include <vector>

#include <gantry/collectives/communicator.hpp>

namespace gantry::bench {

/// Starts the same function on every rank of one group.
class RankGroup {
 public:
  /// Under a launcher: this process is one rank of the world. Else the ranks are `devices` devices
  /// of this process (0: all). Throws: InvalidArgument for more devices than there are, or more
  /// than one beside a launcher.
  explicit RankGroup(int devices);

  [[nodiscard]] int ranks() const { return ranks_; }
  /// True if this process is to report.
  [[nodiscard]] bool reports() const { return reports_; }
  /// The launcher of the ranks: "threads", "openmpi", "glaunch", …
  [[nodiscard]] const std::string& launched_by() const { return launched_by_; }
  /// Name of rank 0's device, or of this rank's.
  [[nodiscard]] const std::string& device_name() const { return device_name_; }

  /// Makes a new group of the same ranks, which reads the environment anew, and calls `program`
  /// with each rank's communicator, in a thread of its own if there are several here.
  /// Throws: what a rank threw, the first one in time; the others' calls are aborted then.
  void run(const std::function<void(Communicator)>& program);

 private:
  void run_threads(const std::function<void(Communicator)>& program);

  std::vector<Device> devices_;  // empty under a launcher
  int ranks_ = 1;
  bool reports_ = true;
  std::string launched_by_;
  std::string device_name_;
};

}  // namespace gantry::bench
