// The collective kernels on simulated devices.
#include <deque>

#include "collectives/algorithms/flagged.inl"
#include "collectives/algorithms/message_group.inl"
#include "collectives/algorithms/single_thread.inl"
#include "collectives/algorithms/staged.inl"
#include "collectives/algorithms/zero_copy.inl"
#include "collectives/protocol/launch.hpp"
#include "collectives/sim/block.hpp"

namespace gantry::protocol {
namespace {

constexpr int kNoRank = -1;
// Ranks whose units a thread waits for at once.
constexpr int kBatch = 8;

// Runs the blocks of a kernel of `rank` one after the other.
template <class Run>
void for_each_block(int blocks, int rank, Run run) {
  for (int index = 0; index < blocks; ++index) {
    SimBlock block(index, blocks, rank);
    run(block);
    block.finish();
  }
}

// As above, for the type of elements that a plan combines: run(block, TypeTag<T>).
template <class Plan, class Run>
void for_each_block_of(const Plan& plan, int blocks, Run run) {
  with_element(plan.how, [&](auto element) {
    for_each_block(blocks, plan.group.rank, [&](SimBlock& block) { run(block, element); });
  });
}

template <class Tag>
using Element = typename Tag::type;

// The members of a MessageList, for MessageGroupTask.
struct AnyList {
  const Group& group;
  std::int32_t sends;
  std::int32_t count;
  const GroupedMessage* messages;
};

}  // namespace

namespace kernel {

void ll::simulate(const FlaggedPlan& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    flagged<Element<decltype(element)>, Ll, kBatch, 1>(block, plan);
  });
}

void ll128::simulate(const FlaggedPlan& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    flagged<Element<decltype(element)>, Ll128, kBatch, 1>(block, plan);
  });
}

void ll128_two_shot::simulate(const FlaggedPlan& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    flagged<Element<decltype(element)>, Ll128, kBatch, 2>(block, plan);
  });
}

void one_shot::simulate(const StagedPlan& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    staged<Element<decltype(element)>, 1>(block, plan);
  });
}

void uneven_one_shot::simulate(const UnevenPlan& plan, int blocks) {
  for_each_block(blocks, plan.group.rank, [&](SimBlock& block) { staged<Moved, 1>(block, plan); });
}

void two_shot::simulate(const StagedPlan& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    staged<Element<decltype(element)>, 2>(block, plan);
  });
}

void zero_copy::simulate(const ZeroCopy& plan, int blocks) {
  for_each_block_of(plan, blocks, [&](SimBlock& block, auto element) {
    protocol::zero_copy<Element<decltype(element)>>(block, plan);
  });
}

void send::simulate(const Message& plan, int blocks) {
  for_each_block(blocks, plan.group.rank, [&](SimBlock& block) { send_message(block, plan); });
}

void receive::simulate(const Message& plan, int blocks) {
  for_each_block(blocks, plan.group.rank, [&](SimBlock& block) { receive_message(block, plan); });
}

// Runs the blocks in turns: one of them may wait for a peer that waits for another one.
void messages::simulate(const MessagePlan& plan, int blocks) {
  const AnyList list{plan.group, plan.sends, static_cast<std::int32_t>(plan.messages.size()),
                     plan.messages.data()};
  std::deque<SimBlock> running;
  std::deque<MessageGroupTask<SimBlock, AnyList>> tasks;
  for (int index = 0; index < blocks; ++index) {
    running.emplace_back(index, blocks, plan.group.rank);
    tasks.emplace_back(running.back(), list);
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

void peer_signal::simulate(const PeerSignal& plan, int blocks) {
  for_each_block(blocks, kNoRank, [&](SimBlock& block) { pass_signal(block, plan); });
}

void progress_report::simulate(const ProgressReport& plan, int blocks) {
  for_each_block(blocks, kNoRank, [&](SimBlock& block) { report_progress(block, plan); });
}

void abort_report::simulate(const AbortReport& plan, int blocks) {
  for_each_block(blocks, kNoRank, [&](SimBlock& block) { report_abort(block, plan); });
}

}  // namespace kernel
}  // namespace gantry::protocol
