// Ranks of the kernels' protocol by itself: host threads, without streams and communicators.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <vector>

#include "collectives/p2p/plans.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Zeroed memory that takes no room until it is written.
class WorkspaceMemory {
 public:
  WorkspaceMemory()
      : data_(mmap(nullptr, kWorkspaceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0)) {
    if (data_ == MAP_FAILED) throw std::runtime_error("no memory for a workspace");
  }
  ~WorkspaceMemory() { munmap(data_, kWorkspaceBytes); }
  WorkspaceMemory(const WorkspaceMemory&) = delete;
  WorkspaceMemory& operator=(const WorkspaceMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

class Ranks {
 public:
  explicit Ranks(int size) : workspaces_(size), words_(size), groups_(size) {
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_[rank];
      group.rank = rank;
      group.size = size;
      group.layout = layout_for(size);
      group.words = &words_[rank];
      for (int p = 0; p < size; ++p) group.workspaces[p] = workspaces_[p].data();
    }
  }

  int size() const { return static_cast<int>(groups_.size()); }
  const Group& group(int rank) const { return groups_[rank]; }
  SignalPad& pad(int rank) { return pad_of(groups_[rank], rank); }
  DeviceWords& words(int rank) { return words_[rank]; }
  // The last call that the rank reported as begun, and as ended.
  std::uint64_t started(int rank) { return call_of(std::atomic_ref(words(rank).started).load()); }
  std::uint64_t finished(int rank) { return call_of(std::atomic_ref(words(rank).finished).load()); }

  // Sets the state after `epoch` operations, the last one with all blocks and no chunks.
  void set_epoch(std::uint32_t epoch) {
    for (int rank = 0; rank < size(); ++rank) {
      SignalPad& words = pad(rank);
      for (int block = 0; block < kMaxBlocks; ++block) {
        words.begun[block] = words.ended[block] = epoch;
        for (int p = 0; p < size(); ++p) {
          words.full[block][p] = words.reduced[block][p] = words.empty[block][p] =
              signal_word(epoch, 0);
        }
      }
    }
  }

 private:
  std::deque<WorkspaceMemory> workspaces_;
  std::deque<DeviceWords> words_;
  std::vector<Group> groups_;
};

// The algorithms that can do an all_reduce.
inline constexpr Algorithm kAlgorithms[] = {Algorithm::ll, Algorithm::ll128,
                                            Algorithm::ll128_two_shot, Algorithm::one_shot,
                                            Algorithm::two_shot};

inline void run(Algorithm algorithm, const Group& group, const CollectiveCall& call, int blocks) {
  switch (algorithm) {
    case Algorithm::ll:
      return kernel::ll::simulate(plan_flagged_one_shot(group, call), blocks);
    case Algorithm::ll128:
      return kernel::ll128::simulate(plan_flagged_one_shot(group, call), blocks);
    case Algorithm::ll128_two_shot:
      return kernel::ll128_two_shot::simulate(plan_flagged_two_shot(group, call), blocks);
    case Algorithm::two_shot:
      return kernel::two_shot::simulate(plan_two_shot(group, call, blocks), blocks);
    default:
      if (call.is_uneven()) {
        return kernel::uneven_one_shot::simulate(plan_uneven(group, call, blocks), blocks);
      }
      return kernel::one_shot::simulate(plan_one_shot(group, call, blocks), blocks);
  }
}

// Element i of what rank `rank` gives to call `number`.
inline std::int32_t given(int rank, std::int64_t number, std::int64_t i) {
  return static_cast<std::int32_t>((rank + 1) * 1000003 + number * 7919 + i * 31);
}

inline void all_reduce(Ranks& ranks, int rank, Algorithm algorithm, std::int64_t number,
                       std::int64_t count, int blocks) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(count));
  std::vector<std::int32_t> out(in.size(), -1);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = given(rank, number, static_cast<std::int64_t>(i));
  }
  CollectiveCall call;
  call.what = {
      .call = number, .count = count, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
  call.in = in.data();
  call.out = out.data();
  run(algorithm, ranks.group(rank), call, blocks);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t sum = 0;
    for (int p = 0; p < ranks.size(); ++p) {
      sum += static_cast<std::uint32_t>(given(p, number, static_cast<std::int64_t>(i)));
    }
    ASSERT_EQ(static_cast<std::uint32_t>(out[i]), sum)
        << name(algorithm) << " #" << number << " rank " << rank << " element " << i;
  }
}

}  // namespace gantry::protocol
