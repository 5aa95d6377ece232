// Ranks whose kernels are explored, warp by warp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms/message.inl"
#include "tests/collectives/protocol/explored_block.hpp"
#include "tests/collectives/protocol/protocol_ranks.hpp"

namespace gantry::protocol {

// Runs kernels on every rank, each in its own time, in an order that a seed says. Workspaces have
// so little staging that short arrays take many chunks.
class ExploredRanks {
 public:
  // Operation queues of a rank. Kernels of one queue run one after the other.
  enum Queue : int { kTogether, kSends, kReceives, kQueues };
  // Warps of a block: two, two and a signalling warp, or the warps of two or three roles.
  enum class Warps : int { two = 2, two_and_signalling = 3, two_roles = 6, three_roles = 9 };

  struct Kernel {
    int blocks = 1;
    Warps warps = Warps::two;
    std::function<void(ExploredBlock&)> run;
    // Called when it is over; what is wrong with the result, or nothing.
    std::function<std::string()> check;
  };

  ExploredRanks(int size, std::uint64_t seed, Weakness weakness = Weakness::none)
      : ranks_(size),
        exploration_(size * kQueues * kQueueActors, seed, weakness),
        queues_(static_cast<std::size_t>(size * kQueues)) {
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_.emplace_back(ranks_.group(rank));
      group.layout.staging_bytes = 2048;
      group.layout.connection_bytes =
          kConnectionBlocks * kConnectionSlots * (kSlotHeader + kMinMessageChunk);
    }
    exploration_.ended = [this](int actor) { end(actor); };
  }

  int size() const { return ranks_.size(); }
  const Group& group(int rank) const { return groups_[static_cast<std::size_t>(rank)]; }
  DeviceWords& words(int rank) { return ranks_.words(rank); }
  Exploration& exploration() { return exploration_; }

  // Tells whose memory that is not a workspace is.
  void own(int rank, const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    owned_.push_back({rank, begin, begin + bytes});
  }
  void add(int rank, Queue queue, Kernel kernel) {
    queues_[index_of(rank, queue)].kernels.push_back(std::move(kernel));
  }
  // After so many choices `rank` stops where it is; the others are told after as many again.
  void lose(int rank, std::uint64_t choices) {
    exploration_.schedule(choices, [this, rank] {
      const auto first = static_cast<int>(index_of(rank, kTogether)) * kQueueActors;
      for (int i = 0; i < kQueues * kQueueActors; ++i) exploration_.kill(first + i);
    });
    exploration_.schedule(2 * choices, [this] {
      for (int p = 0; p < size(); ++p) words(p).abort = 1;
    });
  }

  // Empty if every kernel ended and all results are right, else what is not.
  std::string run() {
    for (std::size_t queue = 0; queue < queues_.size(); ++queue) launch(queue);
    const bool ended = exploration_.run();
    if (failure_.empty() && !ended) failure_ = "some kernels wait for ever";
    return failure_;
  }

 private:
  static constexpr int kMostBlocks = 2;
  static constexpr int kMostWarps = 9;
  static constexpr int kQueueActors = kMostBlocks * kMostWarps;

  struct QueueState {
    std::deque<Kernel> kernels;        // the first one runs
    std::deque<ExploredWarps> blocks;  // of it
    int running = 0;                   // warps of it
  };
  struct Owned {
    int rank;
    const std::byte* begin;
    const std::byte* end;
  };

  static std::size_t index_of(int rank, Queue queue) {
    return static_cast<std::size_t>(rank * kQueues + queue);
  }

  void launch(std::size_t index) {
    QueueState& queue = queues_[index];
    if (queue.kernels.empty()) return;
    const Kernel& kernel = queue.kernels.front();
    const int count = static_cast<int>(kernel.warps);
    queue.blocks.clear();
    queue.running = kernel.blocks * count;
    for (int block = 0; block < kernel.blocks; ++block) {
      ExploredWarps& warps = queue.blocks.emplace_back();
      warps.warps = count;
      warps.has_signalling_warp = kernel.warps == Warps::two_and_signalling;
      for (int warp = 0; warp < count; ++warp) {
        const int actor = static_cast<int>(index) * kQueueActors + block * kMostWarps + warp;
        exploration_.start(actor, [this, &kernel, &warps, block, warp] {
          ExploredBlock explored(exploration_, warps, block, kernel.blocks, warp);
          kernel.run(explored);
        });
      }
    }
  }

  // When a kernel is over its loads and its stores to its own rank's memory are, and the next one
  // knows of the others: that these were seen elsewhere is not taken for granted.
  void end(int actor) {
    const int index = actor / kQueueActors;
    QueueState& queue = queues_[static_cast<std::size_t>(index)];
    if (--queue.running > 0) return;
    const int rank = index / kQueues;
    exploration_.memory().settle([&](int other) { return other / kQueueActors == index; },
                                 [&](const std::byte* place) { return !is_away(rank, place); });
    Past all;
    const int first = index * kQueueActors;
    for (int i = 0; i < kQueueActors; ++i) join(all, exploration_.memory().past(first + i));
    for (int i = 0; i < kQueueActors; ++i) exploration_.memory().learn(first + i, all);
    const std::string wrong = queue.kernels.front().check();
    if (failure_.empty()) failure_ = wrong;
    queue.kernels.pop_front();
    launch(static_cast<std::size_t>(index));
  }

  bool is_away(int rank, const std::byte* place) const {
    for (int p = 0; p < size(); ++p) {
      const std::byte* const begin = group(rank).workspaces[p];
      if (p != rank && place >= begin && place < begin + kWorkspaceBytes) return true;
    }
    for (const Owned& owned : owned_) {
      if (owned.rank != rank && place >= owned.begin && place < owned.end) return true;
    }
    return false;
  }

  Ranks ranks_;
  std::deque<Group> groups_;
  Exploration exploration_;
  std::vector<QueueState> queues_;
  std::vector<Owned> owned_;
  std::string failure_;
};

}  // namespace gantry::protocol
