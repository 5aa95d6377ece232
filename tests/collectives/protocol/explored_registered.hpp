// Calls on registered memory for ranks that are explored.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "collectives/algorithms/zero_copy.inl"
#include "tests/collectives/protocol/explored_calls.hpp"

namespace gantry::protocol {

// One array on each rank, for calls of which each finds what the one before left: see
// RegisteredOperations, whose plans these are.
class ExploredRegistered {
 public:
  explicit ExploredRegistered(ExploredRanks& ranks) : ranks_(ranks) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Elements& array = arrays_.emplace_back(given_by(rank, kCount, 0));
      wanted_.push_back(array);
      ranks.own(rank, array.data(), kBytes);
    }
  }

  // Every rank makes its part of the sums and stores it on all ranks; or on itself, from where
  // copies between two kernels take it.
  void all_reduce(int blocks, bool by_copies) {
    Elements sums = wanted_[0];
    for (int p = 1; p < ranks_.size(); ++p) add_to(sums, wanted_[at(p)]);
    for (Elements& wanted : wanted_) wanted = sums;
    ++calls_;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      ZeroCopy first = zero_copy(rank, CollectiveKind::all_reduce, 0);
      const std::int64_t part = (kBytes / ranks_.size() + 15) / 16 * 16;
      const std::int64_t begin = rank * part;
      first.begins = true;
      first.how.copies = false;
      first.how.dtype = DType::i32;
      first.bytes = clipped(kBytes, begin, part);
      first.inputs = ranks_.size();
      first.targets = by_copies ? std::uint32_t{1} << rank : all_ranks(ranks_.size());
      for (int p = 0; p < ranks_.size(); ++p) first.ins[p] = first.outs[p] = array(p) + begin;
      if (!by_copies) {
        first.barrier = 1;
        first.ends = true;
        add_kernel(rank, first, blocks);
        continue;
      }
      add_kernel(rank, first, blocks);
      add_copies(rank, begin, first.bytes);
      add_last(rank, CollectiveKind::all_reduce);
    }
  }
  void broadcast_by_copies(int root) {
    for (Elements& wanted : wanted_) wanted = wanted_[at(root)];
    ++calls_;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      ZeroCopy first = zero_copy(rank, CollectiveKind::broadcast, root);
      first.begins = true;
      add_kernel(rank, first, 1);
      if (rank == root) add_copies(rank, 0, kBytes);
      add_last(rank, CollectiveKind::broadcast, root);
    }
  }

 private:
  static constexpr std::int64_t kCount = 100;
  static constexpr std::int64_t kBytes = 4 * kCount;

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::byte* array(int rank) { return reinterpret_cast<std::byte*>(arrays_[at(rank)].data()); }

  ZeroCopy zero_copy(int rank, CollectiveKind kind, int root) const {
    const Descriptor what{
        .call = calls_, .count = kCount, .root = root, .kind = kind, .dtype = DType::i32};
    ZeroCopy plan;
    plan.group = ranks_.group(rank);
    plan.call = static_cast<std::uint64_t>(calls_);
    plan.digest = what.hash();
    return plan;
  }
  void add_last(int rank, CollectiveKind kind, int root = 0) {
    ZeroCopy last = zero_copy(rank, kind, root);
    last.barrier = 1;
    last.ends = true;
    add_kernel(rank, last, 1);
  }

  void add_kernel(int rank, const ZeroCopy& plan, int blocks) {
    ranks_.add(rank, ExploredRanks::kTogether,
               {.blocks = blocks,
                .warps = ExploredRanks::Warps::two,
                .run =
                    [plan = std::make_shared<ZeroCopy>(plan)](ExploredBlock& block) {
                      if (plan->how.copies) return protocol::zero_copy<Moved>(block, *plan);
                      protocol::zero_copy<std::int32_t>(block, *plan);
                    },
                .check =
                    [this, rank, ends = plan.ends, wanted = wanted_[at(rank)],
                     name = "registered call " + std::to_string(calls_)] {
                      if (ranks_.words(rank).abort != 0) return std::string();
                      if (ranks_.words(rank).fault != 0) return name + " reports a fault";
                      return ends ? difference(name, rank, arrays_[at(rank)], wanted) : "";
                    }});
  }
  // What engines do: pieces in any order.
  void add_copies(int rank, std::int64_t begin, std::int64_t bytes) {
    ranks_.add(rank, ExploredRanks::kTogether,
               {.blocks = 1,
                .warps = ExploredRanks::Warps::two,
                .run =
                    [this, rank, begin, bytes](ExploredBlock& block) {
                      block.copy(ranks_.size(), bytes, [&](int p) {
                        return Run{array(p) + begin, array(rank) + begin, p == rank ? 0 : bytes};
                      });
                    },
                .check = [] { return std::string(); }});
  }

  ExploredRanks& ranks_;
  std::deque<Elements> arrays_;   // by rank
  std::deque<Elements> wanted_;   // what is in them after all calls so far
  std::int64_t calls_ = 1 << 20;  // numbers that no others have
};

}  // namespace gantry::protocol
