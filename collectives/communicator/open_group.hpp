#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/communicator/work_state.hpp"
#include "collectives/descriptor.hpp"
#include "collectives/protocol/plan.hpp"

namespace gantry {

// The most sends and receives of one group, which are a kernel argument.
inline constexpr std::size_t kMostGroupMessages = protocol::kMostMessages;

// A send or receive whose own arguments are checked.
struct Communicator::Message {
  CollectiveKind kind;
  Tensor tensor;
  int peer;
  CollectiveOptions options;
  Stream stream;  // the current stream at the call
};

// The messages of an open group() scope.
// Thread safety: only its thread uses it.
struct Communicator::OpenGroup {
  class List;

  std::thread::id thread;
  std::vector<Message> messages;
  std::shared_ptr<Work::State> state;  // of every Work that its calls return
};

// The open groups of one communicator, one per thread at most, and the error of the last one.
// Thread safety: any thread.
class Communicator::OpenGroup::List {
 public:
  // The group of the calling thread; null: none.
  [[nodiscard]] std::shared_ptr<OpenGroup> mine() const;
  // Throws: InvalidArgument if the calling thread has an open group.
  void open(std::shared_ptr<OpenGroup> group);
  void close(const OpenGroup& group) noexcept;
  // Throws: InvalidArgument if the calling thread has an open group that cannot collect `kind`.
  void require_none(CollectiveKind kind) const;
  // Makes the next operation throw `error`, which a group's destructor caught.
  void fail_next(std::exception_ptr error) noexcept;
  // Throws the error of fail_next() once.
  void raise_failure();

 private:
  mutable std::mutex mutex_;  // guards the next two members
  std::vector<std::shared_ptr<OpenGroup>> groups_;
  std::exception_ptr failure_;
  // Whether they are set: operations look without the lock.
  std::atomic<bool> has_groups_{false};
  std::atomic<bool> has_failure_{false};
};

}  // namespace gantry
