#include "collectives/algorithms/message_group.inl"

#include <deque>

#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

namespace {

// The members of a MessageList, for MessageGroupTask.
struct AnyList {
  const Group& group;
  std::int32_t sends;
  std::int32_t count;
  const GroupedMessage* messages;
};

}  // namespace

// Runs the blocks in turns: one of them may wait for a peer that waits for another one.
void messages(const MessagePlan& plan) {
  const AnyList list{plan.group, plan.sends, static_cast<std::int32_t>(plan.messages.size()),
                     plan.messages.data()};
  const int count = blocks_of(list, list.count);
  std::deque<SimBlock> blocks;
  std::deque<MessageGroupTask<SimBlock, AnyList>> tasks;
  for (int index = 0; index < count; ++index) {
    blocks.emplace_back(index, count);
    tasks.emplace_back(blocks.back(), list);
  }
  for (std::uint32_t fruitless = 1;; ++fruitless) {
    bool moved = false;
    bool is_done = true;
    for (auto& task : tasks) {
      if (task.is_done()) continue;
      moved = task.advance() || moved;
      is_done = is_done && task.is_done();
    }
    if (is_done) return;
    if (moved) fruitless = 0;
    schedule::pause(fruitless);
  }
}

}  // namespace gantry::protocol::sim
