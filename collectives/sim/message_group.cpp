#include "collectives/algorithms/message_group.inl"

#include <deque>

#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

namespace {

// What MessageGroupShare reads of a MessageList.
struct AnyList {
  const Group& group;
  std::int32_t sends;
  std::int32_t count;
  const GroupedMessage* messages;
};

}  // namespace

// Blocks take turns: one of them may wait for a peer that waits for another one.
void messages(const MessagePlan& plan) {
  const AnyList list{plan.group, plan.sends, static_cast<std::int32_t>(plan.messages.size()),
                     plan.messages.data()};
  const int count = blocks_of(list, list.count);
  std::deque<SimBlock> blocks;
  std::deque<MessageGroupShare<SimBlock, AnyList>> shares;
  for (int index = 0; index < count; ++index) {
    blocks.emplace_back(index, count);
    shares.emplace_back(blocks.back(), list);
  }
  for (std::uint32_t fruitless = 1;; ++fruitless) {
    bool moved = false;
    bool is_done = true;
    for (auto& share : shares) {
      if (share.is_done()) continue;
      moved = share.advance() || moved;
      is_done = is_done && share.is_done();
    }
    if (is_done) return;
    if (moved) fruitless = 0;
    schedule::pause(fruitless);
  }
}

}  // namespace gantry::protocol::sim
