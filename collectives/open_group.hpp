#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/descriptor.hpp"
#include "collectives/protocol/plan.hpp"
#include "collectives/work_state.hpp"

namespace gantry {

// The most sends and receives of one group: a kernel gets them as its argument.
inline constexpr std::size_t kMostGroupMessages = protocol::kMostMessages;

// One send or receive, checked by itself.
struct Communicator::Message {
  CollectiveKind kind;
  Tensor tensor;
  int peer;
  CollectiveOptions options;
  Stream stream;  // that was current at the call
};

// The messages of a scope that is not over.
// Thread safety: used by its thread only.
struct Communicator::OpenGroup {
  std::thread::id thread;
  std::vector<Message> messages;
  std::shared_ptr<Work::State> state;  // of every Work that its calls return
};

}  // namespace gantry
