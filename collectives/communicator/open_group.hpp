#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  std::thread::id thread;
  std::vector<Message> messages;
  std::shared_ptr<Work::State> state;  // of every Work that its calls return
};

}  // namespace gantry
