// Counts of what simulated kernels and copy engines move.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collectives/sim/accesses.hpp"
#include "tests/collectives/counted_traffic.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::testing {

/// Counts what kernels and copy engines move between devices. Rank r has device r. Kernels know the
/// ranks of their machine alone, which are numbered from 0.
class MoveCounter final : public protocol::accesses::Watcher, public FaultDriver {
 public:
  explicit MoveCounter(int ranks_of_machine = 64) : width_(ranks_of_machine) {
    protocol::accesses::set_watcher(this);
  }
  ~MoveCounter() override { protocol::accesses::set_watcher(nullptr); }

  void on_access(const protocol::accesses::Access& access) override {
    const std::lock_guard lock(mutex_);
    // A block holds the data at one end at most.
    const int peer = owner_of(access.to == nullptr ? access.from : access.to);
    const int holder = peer / width_ * width_ + access.rank;
    const int from = access.from == nullptr ? holder : owner_of(access.from);
    const int to = access.to == nullptr ? holder : owner_of(access.to);
    if (from == to) return;
    const bool is_new =
        !access.is_unit || runs_.emplace(from, access.block, to, access.is_reply).second;
    moved.add(from, to, access.bytes, is_new ? 1 : 0);
  }
  // Kernels of a rank run one after the other, and begin with block 0.
  void on_end(int rank, int block, std::int64_t steps) override {
    if (rank < 0) return;
    const std::lock_guard lock(mutex_);
    std::vector<std::int64_t>& kernels = steps_[static_cast<std::size_t>(rank)];
    if (block == 0) kernels.push_back(0);
    kernels.back() = std::max(kernels.back(), steps);
  }
  void copy_batch(std::span<const CopyRegion> runs, NativeStream stream) override {
    FaultDriver::copy_batch(runs, stream);
    const std::lock_guard lock(mutex_);
    for (const CopyRegion& run : runs) {
      const int from = owner_of(static_cast<const std::byte*>(run.from));
      const int to = owner_of(static_cast<const std::byte*>(run.to));
      if (from != to) moved.add(from, to, static_cast<std::int64_t>(run.bytes), 1);
    }
  }

  /// Of the slowest of ranks first, first + stride, ….
  std::int64_t steps(std::size_t first = 0, std::size_t stride = 1) const {
    std::int64_t most = 0;
    for (std::size_t rank = first; rank < steps_.size(); rank += stride) {
      std::int64_t of_rank = 0;
      for (const std::int64_t steps : steps_[rank]) of_rank += steps;
      most = std::max(most, of_rank);
    }
    return most;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    moved.clear();
    runs_.clear();
    owners_.clear();
    for (auto& kernels : steps_) kernels.clear();
  }

  TrafficTable moved;

 private:
  static constexpr std::uintptr_t kPage = 4096;

  int owner_of(const std::byte* data) {
    const auto page = reinterpret_cast<std::uintptr_t>(data) / kPage;
    const auto found = owners_.find(page);
    if (found != owners_.end()) return found->second;
    return owners_[page] = pointer_info(data).device;
  }

  int width_;
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, int> owners_;
  std::set<std::tuple<int, int, int, bool>> runs_;  // of units: rank, block, receiver, reply
  std::array<std::vector<std::int64_t>, 64> steps_;
};

}  // namespace gantry::testing
