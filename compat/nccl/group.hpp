// ncclGroupStart() and ncclGroupEnd(): the calls between them run together.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "compat/nccl/operation.hpp"
#include "compat/nccl/outcome.hpp"
#include "compat/nccl/rank.hpp"
#include "compat/nccl/run.hpp"

namespace gantry::nccl_api {

// Note [Groups]
// A group collects the calls of its thread on any communicators, and runs them when it ends. Calls
// that make groups, and others in which hosts wait for each other, run in threads of their own, so
// one thread may make them for several ranks. Operations are enqueued afterwards, rank by rank. The
// hosts of "host" wait for each other in them, so these ranks have threads as well.
//
// A call that is refused makes its group fail: the end runs nothing. Part of a group would let
// other ranks wait for the rest of it.
//
// NCCL collects the operations of communicators that are its own, in a group of its own. It runs
// them after all of gantry's, even if those fail.

// The open group of the calling thread.
class CallGroup {
 public:
  static CallGroup& mine();

  void start() { ++depth_; }
  // Runs the calls if the outermost group ends. Throws: InvalidArgument if none is open; the first
  // error of a call.
  void end();
  [[nodiscard]] bool is_open() const { return depth_ > 0; }
  // Makes the open group fail, if there is one. Its end throws its first error.
  void fail(const std::exception_ptr& error);

  // Runs `operation` now, or when the group ends. True if it is NCCL's.
  bool submit(const std::shared_ptr<Rank>& rank, const Operation& operation);
  // Runs a call in which the hosts of all ranks meet, now or when the group ends.
  void submit_host_call(std::function<void()> call);

 private:
  struct Submission {
    std::shared_ptr<Rank> rank;
    std::vector<KnownOperation> operations;
  };
  void run_own();
  static void run_all(const std::vector<Submission>& submissions);
  static void run_all(const std::vector<const Submission*>& submissions);

  int depth_ = 0;
  bool has_theirs_ = false;  // NCCL's group is open
  std::vector<std::function<void()>> host_calls_;
  std::vector<Submission> submissions_;  // in order of each rank's first operation
  std::vector<Submission> spare_;        // empty: memory of the group before
  std::exception_ptr error_;
};

// Runs the body of a function whose work an open group collects. See guarded().
template <class Body>
ncclResult_t collected(Tally& tally, Body body) noexcept {
  return guarded(tally, [&] {
    try {
      return body();
    } catch (...) {
      CallGroup::mine().fail(std::current_exception());
      throw;
    }
  });
}

}  // namespace gantry::nccl_api
