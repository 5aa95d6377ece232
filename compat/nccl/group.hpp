// ncclGroupStart() and ncclGroupEnd(): the calls between them run together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "compat/nccl/operation.hpp"
#include "compat/nccl/rank.hpp"

namespace gantry::nccl_api {

// Note [Groups]
// A group collects the calls of its thread on any communicators, and runs them when it ends. Calls
// that make groups, and others in which hosts wait for each other, run in threads of their own, so
// one thread may make them for several ranks. Operations are enqueued afterwards, rank by rank. The
// hosts of "host" wait for each other in them, so these ranks have threads as well.

// The open group of the calling thread.
class CallGroup {
 public:
  static CallGroup& mine();

  void start() { ++depth_; }
  // Runs the calls if the outermost group ends. Throws: InvalidArgument if none is open; the first
  // error of a call.
  void end();
  [[nodiscard]] bool is_open() const { return depth_ > 0; }

  // Runs `operation` now, or when the group ends.
  void submit(const std::shared_ptr<Rank>& rank, const Operation& operation);
  // Runs a call in which the hosts of all ranks meet, now or when the group ends.
  void submit_host_call(std::function<void()> call);

 private:
  struct Submission {
    std::shared_ptr<Rank> rank;
    std::vector<Operation> operations;
  };

  int depth_ = 0;
  std::vector<std::function<void()>> host_calls_;
  std::vector<Submission> submissions_;  // in order of each rank's first operation
};

}  // namespace gantry::nccl_api
