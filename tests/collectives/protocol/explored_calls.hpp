// Calls of a few elements for ranks that are explored, and what they must give.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms/flagged.inl"
#include "collectives/algorithms/message.inl"
#include "collectives/algorithms/staged.inl"
#include "collectives/algorithms/zero_copy.inl"
#include "collectives/selection/selector.hpp"
#include "tests/collectives/protocol/explored_ranks.hpp"

namespace gantry::protocol {

using Elements = std::vector<std::int32_t>;

// What rank `rank` gives to call `call`, from its element `begin` on.
inline Elements given_by(int rank, std::int64_t count, std::int64_t call, std::int64_t begin = 0) {
  Elements elements(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    elements[static_cast<std::size_t>(i)] = given(rank, call, begin + i);
  }
  return elements;
}
inline void add_to(Elements& sums, const Elements& more) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[i]) +
                                        static_cast<std::uint32_t>(more[i]));
  }
}
// Empty if all are what they should be, else what is not.
inline std::string difference(const std::string& name, int rank, const Elements& got,
                              const Elements& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    return name + ", rank " + std::to_string(rank) + ", element " + std::to_string(i) +
           ": expected " + std::to_string(wanted[i]) + ", but got " + std::to_string(got[i]);
  }
  return {};
}

// One operation of all ranks.
struct ExploredCall {
  Algorithm algorithm = Algorithm::one_shot;
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::int64_t count = 0;
  int root = 0;
  int blocks = 1;
  bool in_place = false;
  // For an all_to_all of unequal blocks: elements from each rank (first) to each.
  std::vector<std::vector<std::int64_t>> counts = {};
  int mismatched = -1;    // the rank that makes another call; -1: none
  bool may_open = false;  // see Note [Open arrays]
  int closed = -1;        // the rank whose arrays are not open; -1: none
};

// Adds calls to ranks: arrays, plans as the library makes them, and checks.
class ExploredCalls {
 public:
  explicit ExploredCalls(ExploredRanks& ranks) : ranks_(ranks) {}

  void add(const ExploredCall& call) {
    ++calls_;
    for (int rank = 0; rank < size(); ++rank) {
      Arrays& arrays = arrays_.emplace_back(arrays_of(call, rank));
      add_kernel(call, rank, arrays);
    }
  }

  void add_message(int from, int to, std::int64_t count, int blocks) {
    ++messages_;
    CollectiveCall call;
    call.what = {.call = messages_, .count = count, .dtype = DType::i32};
    const auto add = [&](int rank, CollectiveKind kind, Arrays arrays, ExploredRanks::Queue queue) {
      Arrays& kept = arrays_.emplace_back(std::move(arrays));
      call.what.kind = kind;
      call.what.root = rank == from ? to : from;
      call.in = kept.in.data();
      call.out = kept.out.data();
      const Message plan = plan_message(ranks_.group(rank), call, nullptr);
      const bool sends = rank == from;
      ranks_.add(rank, queue,
                 {.blocks = blocks,
                  .warps = ExploredRanks::Warps::two_and_signalling,
                  .run =
                      [plan = std::make_shared<Message>(plan), sends](ExploredBlock& block) {
                        sends ? send_message(block, *plan) : receive_message(block, *plan);
                      },
                  .check =
                      [this, rank, &kept, name = "message " + std::to_string(messages_)] {
                        if (ranks_.words(rank).abort != 0) return std::string();
                        return difference(name, rank, kept.out, kept.wanted);
                      }});
    };
    Elements sent = given_by(from, count, -messages_);
    add(to, CollectiveKind::recv, {.out = Elements(sent.size(), -1), .wanted = sent},
        ExploredRanks::kReceives);
    add(from, CollectiveKind::send, {.in = std::move(sent)}, ExploredRanks::kSends);
  }

 private:
  struct Arrays {
    Elements in = {};
    Elements out = {};
    Elements wanted = {};
    bool in_place = false;
  };

  int size() const { return ranks_.size(); }

  Elements sums(std::int64_t count, std::int64_t begin) const {
    Elements result(static_cast<std::size_t>(count));
    for (int p = 0; p < size(); ++p) add_to(result, given_by(p, count, calls_, begin));
    return result;
  }
  static void append(Elements& to, const Elements& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  // Elements that `from` gives to `to`, and where they begin in its input.
  static std::int64_t count_of(const ExploredCall& call, int from, int to) {
    return call.counts.empty()
               ? call.count
               : call.counts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
  static std::int64_t send_begin(const ExploredCall& call, int from, int to) {
    std::int64_t begin = 0;
    for (int p = 0; p < to; ++p) begin += count_of(call, from, p);
    return begin;
  }

  Arrays arrays_of(const ExploredCall& call, int rank) const {
    const std::int64_t count = call.count;
    const bool is_root = rank == call.root;
    Arrays arrays;
    switch (call.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce:
        arrays.in = given_by(rank, count, calls_);
        arrays.in_place = call.in_place;
        if (call.kind == CollectiveKind::all_reduce || is_root) arrays.wanted = sums(count, 0);
        break;
      case CollectiveKind::broadcast:
        arrays.in_place = is_root;
        if (is_root) arrays.in = given_by(rank, count, calls_);
        arrays.wanted = given_by(call.root, count, calls_);
        break;
      case CollectiveKind::gather:
      case CollectiveKind::all_gather:
        arrays.in = given_by(rank, count, calls_);
        if (call.kind == CollectiveKind::gather && !is_root) break;
        for (int p = 0; p < size(); ++p) append(arrays.wanted, given_by(p, count, calls_));
        break;
      case CollectiveKind::reduce_scatter:
        arrays.in = given_by(rank, count * size(), calls_);
        arrays.wanted = sums(count, rank * count);
        break;
      case CollectiveKind::scatter:
        if (is_root) arrays.in = given_by(rank, count * size(), calls_);
        arrays.wanted = given_by(call.root, count, calls_, rank * count);
        break;
      case CollectiveKind::all_to_all:
        arrays.in = given_by(rank, send_begin(call, rank, size()), calls_);
        for (int p = 0; p < size(); ++p) {
          append(arrays.wanted,
                 given_by(p, count_of(call, p, rank), calls_, send_begin(call, p, rank)));
        }
        break;
      default:
        break;
    }
    if (!arrays.in_place) arrays.out.assign(arrays.wanted.size(), -1);
    return arrays;
  }

  void add_kernel(const ExploredCall& call, int rank, Arrays& arrays) {
    CollectiveCall made;
    made.what = {.call = calls_,
                 .count = call.counts.empty() ? call.count : -1,
                 .root = call.root,
                 .kind = call.kind,
                 .dtype = rank == call.mismatched ? DType::f32 : DType::i32};
    if (!arrays.in.empty()) made.in = arrays.in.data();
    if (!arrays.wanted.empty()) {
      made.out = arrays.in_place ? arrays.in.data() : arrays.out.data();
    }
    std::vector<std::int64_t> sends;
    std::vector<std::int64_t> receives;
    for (int p = 0; !call.counts.empty() && p < size(); ++p) {
      sends.push_back(count_of(call, rank, p));
      receives.push_back(count_of(call, p, rank));
    }
    made.send_counts = sends;
    made.recv_counts = receives;
    if (call.may_open) {
      own(rank, arrays.in);
      own(rank, arrays.out);
    }
    const bool differs = call.mismatched >= 0;
    // What a mismatch leaves as it is; ranks that agree on uneven blocks may have moved theirs.
    if (differs) arrays.wanted = arrays.in_place ? arrays.in : arrays.out;
    const bool is_open = differs && !call.counts.empty();
    ExploredRanks::Kernel kernel = kernel_of(call, rank, made);
    kernel.check = [this, rank, &arrays, differs, is_open,
                    name = "call " + std::to_string(calls_)] {
      std::uint32_t& fault = ranks_.words(rank).fault;
      const bool has_fault = std::exchange(fault, 0) != 0;
      const bool is_lost = ranks_.words(rank).abort != 0;
      if (has_fault && is_lost) return std::string();
      if (has_fault != differs && !is_open) {
        return name + ", rank " + std::to_string(rank) +
               (differs ? " reports no mismatch" : " reports a fault");
      }
      if (is_open) return std::string();
      return difference(name, rank, arrays.in_place ? arrays.in : arrays.out, arrays.wanted);
    };
    ranks_.add(rank, ExploredRanks::kTogether, std::move(kernel));
  }

  // Keeps the plan for accesses that are under way when the kernel is over.
  template <class Plan, class Run>
  static ExploredRanks::Kernel kernel(ExploredRanks::Warps warps, int blocks, const Plan& plan,
                                      const Run& run) {
    return {.blocks = blocks,
            .warps = warps,
            .run =
                [plan = std::make_shared<Plan>(plan), run](ExploredBlock& block) {
                  if (plan->how.copies) return run(TypeTag<Moved>{}, block, *plan);
                  run(TypeTag<std::int32_t>{}, block, *plan);
                },
            .check = {}};
  }
  static Opening opening(const ExploredCall& explored, int rank, const CollectiveCall& call) {
    Opening opening{.is_possible = explored.may_open};
    if (rank == explored.closed) return opening;
    OpenArrays& arrays = opening.arrays.emplace();
    std::ranges::fill(arrays.ins, static_cast<std::byte*>(const_cast<void*>(call.in)));
    std::ranges::fill(arrays.outs, static_cast<std::byte*>(call.out));
    return opening;
  }
  // Lets the ranks access an array of one of them.
  void own(int rank, Elements& array) {
    if (!array.empty()) ranks_.own(rank, array.data(), array.size() * sizeof array[0]);
  }

  ExploredRanks::Kernel kernel_of(const ExploredCall& explored, int rank,
                                  const CollectiveCall& call) const {
    using Warps = ExploredRanks::Warps;
    const Group& group = ranks_.group(rank);
    const int blocks = explored.blocks;
    switch (explored.algorithm) {
      case Algorithm::ll:
        return kernel(Warps::two, blocks, plan_flagged_one_shot(group, call),
                      [](auto tag, auto& block, const auto& plan) {
                        flagged<typename decltype(tag)::type, Ll, 2, 1>(block, plan);
                      });
      case Algorithm::ll128:
        return kernel(Warps::two, blocks, plan_flagged_one_shot(group, call),
                      [](auto tag, auto& block, const auto& plan) {
                        flagged<typename decltype(tag)::type, Ll128, 2, 1>(block, plan);
                      });
      case Algorithm::ll128_two_shot:
        return kernel(Warps::two, blocks, plan_flagged_two_shot(group, call),
                      [](auto tag, auto& block, const auto& plan) {
                        flagged<typename decltype(tag)::type, Ll128, 2, 2>(block, plan);
                      });
      case Algorithm::two_shot:
        return kernel(Warps::three_roles, blocks,
                      plan_two_shot(group, call, blocks, opening(explored, rank, call)),
                      [](auto tag, auto& block, const auto& plan) {
                        staged<typename decltype(tag)::type, 2>(block, plan);
                      });
      default:
        if (call.is_uneven()) {
          return kernel(Warps::two_roles, blocks, plan_uneven(group, call, blocks),
                        [](auto, auto& block, const auto& plan) { staged<Moved, 1>(block, plan); });
        }
        return kernel(Warps::two_roles, blocks,
                      plan_one_shot(group, call, blocks, opening(explored, rank, call)),
                      [](auto tag, auto& block, const auto& plan) {
                        staged<typename decltype(tag)::type, 1>(block, plan);
                      });
    }
  }

  ExploredRanks& ranks_;
  std::deque<Arrays> arrays_;
  std::int64_t calls_ = 0;
  std::int64_t messages_ = 0;
};

}  // namespace gantry::protocol
