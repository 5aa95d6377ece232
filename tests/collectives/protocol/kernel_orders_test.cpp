// Every kernel of all ranks, for all dtypes, operators and numbers of ranks, in several orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/selection/selector.hpp"
#include "collectives/sim/schedule.hpp"
#include "tests/collectives/protocol/protocol_ranks.hpp"
#include "tests/collectives/rank_inputs.hpp"
#include "tests/support/fiber.hpp"

namespace gantry::protocol {
namespace {

using testing::Bytes;
using testing::RankInputs;
using testing::Reduction;

// Which rank goes on when the one that runs waits, or at one of its signals.
enum class Order { ascending, descending, drawn };
constexpr Order kOrders[] = {Order::ascending, Order::descending, Order::drawn};

// Ranks whose kernels take turns on one thread. Staging is so small that short arrays take more
// chunks than there are slots.
class RanksInTurns {
 public:
  explicit RanksInTurns(int size) : ranks_(size), fibers_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      groups_.push_back(ranks_.group(rank));
      groups_.back().layout.staging_bytes = 2048;
    }
    current_ = this;
    schedule::set_hook([] { current_->point(); });
    schedule::set_pause_hook([] { current_->wait(); });
  }
  ~RanksInTurns() {
    schedule::set_hook(nullptr);
    schedule::set_pause_hook(nullptr);
    current_ = nullptr;
  }
  RanksInTurns(const RanksInTurns&) = delete;
  RanksInTurns& operator=(const RanksInTurns&) = delete;

  int size() const { return ranks_.size(); }
  const Group& group(int rank) const { return groups_[static_cast<std::size_t>(rank)]; }

  // Runs the kernels of `calls`, one of each rank. False if a rank reports a fault, or some wait
  // for ever.
  bool run(Algorithm algorithm, const std::vector<CollectiveCall>& calls, int blocks, Order order) {
    order_ = order;
    for (int rank = 0; rank < size(); ++rank) {
      const CollectiveCall& call = calls[static_cast<std::size_t>(rank)];
      fibers_[static_cast<std::size_t>(rank)].start([this, algorithm, &call, rank, blocks] {
        protocol::run(algorithm, group(rank), call, blocks);
      });
    }
    // More than an LL kernel has units: it pauses once for each.
    constexpr int kMostIdleRounds = 1000;
    int idle_rounds = 0;
    for (int turn = 0; std::ranges::any_of(fibers_, &testing::Fiber::runs); ++turn) {
      if (turn % size() == 0) idle_rounds = std::exchange(moved_, false) ? 0 : idle_rounds + 1;
      if (idle_rounds > kMostIdleRounds) return false;
      running_ = next(turn % size());
      testing::Fiber& fiber = fibers_[static_cast<std::size_t>(running_)];
      if (!fiber.runs()) continue;
      fiber.resume();
      if (!fiber.runs()) moved_ = true;
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (ranks_.words(rank).fault != 0) return false;
    }
    return true;
  }

 private:
  int next(int turn) {
    if (order_ == Order::ascending) return turn;
    if (order_ == Order::descending) return size() - 1 - turn;
    return static_cast<int>(random_() % static_cast<unsigned>(size()));
  }

  // Before a signal.
  void point() {
    moved_ = true;
    if (order_ == Order::drawn && random_() % 8 == 0) stop();
  }
  void wait() { stop(); }
  void stop() { fibers_[static_cast<std::size_t>(running_)].stop(); }

  inline static RanksInTurns* current_ = nullptr;

  Ranks ranks_;
  std::vector<Group> groups_;
  std::deque<testing::Fiber> fibers_;
  std::minstd_rand random_{1};
  Order order_ = Order::ascending;
  int running_ = 0;
  bool moved_ = true;
};

// Runs every operation of an algorithm, and compares all bytes of the ranks' arrays.
class Kernels {
 public:
  Kernels(RanksInTurns& ranks, Algorithm algorithm)
      : ranks_(ranks),
        algorithm_(algorithm),
        before_(static_cast<std::size_t>(ranks.size())),
        after_(before_),
        calls_(before_.size()) {}

  // Empty if all results are right, else the first one that is not.
  std::string run() {
    for (const DType dtype : testing::kAllDTypes) {
      width_ = static_cast<std::int64_t>(element_size(dtype));
      // One element, less than there are reducers; chunks with a rest.
      for (const std::int64_t count : {std::int64_t{1}, 840 / width_ + 3}) {
        what_ = {.count = count, .dtype = dtype};
        RankInputs inputs(size(), dtype, count * size());
        inputs_ = &inputs;
        for (const Reduction& by : testing::reductions_of(dtype)) {
          by_ = by;
          run_reductions();
        }
        by_ = {};
        run_moves();
      }
    }
    return failure_;
  }

  std::int64_t runs() const { return runs_; }

 private:
  using Kind = CollectiveKind;

  int size() const { return ranks_.size(); }
  bool is_root(int rank) const { return rank == what_.root; }

  void run_reductions() {
    for (const bool in_place : {false, true}) {
      run_kind(Kind::all_reduce, -1, in_place);
      for (const int root : {0, size() - 1}) run_kind(Kind::reduce, root, in_place);
      run_kind(Kind::reduce_scatter, -1, in_place);
    }
  }

  void run_moves() {
    run_kind(Kind::all_to_all, -1, false);
    for (const bool in_place : {false, true}) {
      run_kind(Kind::all_gather, -1, in_place);
      for (int root = 0; root < size(); ++root) {
        if (in_place) run_kind(Kind::broadcast, root, in_place);
        run_kind(Kind::gather, root, in_place);
        run_kind(Kind::scatter, root, in_place);
      }
    }
    what_.count = 0;
    run_kind(Kind::barrier, -1, false);
  }

  // Elements of the input and of the output of a rank; 0: it has none.
  std::int64_t input_count(int rank) const {
    const std::int64_t all = what_.count * size();
    switch (what_.kind) {
      case Kind::broadcast:
        return is_root(rank) ? what_.count : 0;
      case Kind::scatter:
        return is_root(rank) ? all : 0;
      case Kind::reduce_scatter:
      case Kind::all_to_all:
        return all;
      case Kind::barrier:
        return 0;
      default:
        return what_.count;
    }
  }
  std::int64_t output_count(int rank) const {
    const std::int64_t all = what_.count * size();
    switch (what_.kind) {
      case Kind::reduce:
        return is_root(rank) ? what_.count : 0;
      case Kind::gather:
        return is_root(rank) ? all : 0;
      case Kind::all_gather:
      case Kind::all_to_all:
        return all;
      case Kind::barrier:
        return 0;
      default:
        return what_.count;
    }
  }

  // A block of a rank's output.
  const std::byte* output_block(int rank, int block) {
    switch (what_.kind) {
      case Kind::all_reduce:
      case Kind::reduce:
        return inputs_->reduced(by_);
      case Kind::reduce_scatter:
        return inputs_->reduced(by_, rank * what_.count);
      case Kind::broadcast:
        return inputs_->input(what_.root);
      case Kind::scatter:
        return inputs_->input(what_.root, rank * what_.count);
      case Kind::all_to_all:
        return inputs_->input(block, rank * what_.count);
      default:
        return inputs_->input(block);
    }
  }

  void run_kind(CollectiveKind kind, int root, bool in_place) {
    if (!can_serve(algorithm_, kind)) return;
    what_.kind = kind;
    what_.root = root;
    what_.op = by_.op;
    what_.scale = by_.scale;
    for (const Order order : kOrders) {
      for (const int blocks : {1, 2}) run_once(in_place, order, blocks);
    }
  }

  void run_once(bool in_place, Order order, int blocks) {
    if (!failure_.empty()) return;
    ++what_.call;
    ++runs_;
    for (int rank = 0; rank < size(); ++rank) prepare(rank, in_place);
    const bool ended = ranks_.run(algorithm_, calls_, blocks, order);
    if (ended && before_ == after_) return;
    failure_ = what_.str() + " by " + std::string(name(algorithm_)) + " among " +
               std::to_string(size()) + (in_place ? " in place" : "") + ", order " +
               std::to_string(static_cast<int>(order)) + ", blocks " + std::to_string(blocks) +
               (ended ? " differs" : " does not end");
  }

  // Makes the arrays of a rank, with bytes around them that no kernel may change.
  void prepare(int rank, bool in_place) {
    constexpr std::int64_t kGap = 128;  // more than a protocol's unit
    const auto at = static_cast<std::size_t>(rank);
    const std::int64_t in_count = input_count(rank);
    const std::int64_t out_count = output_count(rank);
    std::int64_t in_at = kGap;
    std::int64_t out_at = kGap + (in_count * width_ + kGap) / 16 * 16;
    if (in_place && in_count > 0 && out_count > 0) {
      // The smaller one is this rank's slice of the larger one.
      const std::int64_t slice = rank * what_.count * width_;
      out_at = in_at + (in_count > out_count ? slice : 0);
      in_at += in_count < out_count ? slice : 0;
    }
    const std::int64_t end = std::max(in_at + in_count * width_, out_at + out_count * width_);
    Bytes& before = before_[at];
    Bytes& after = after_[at];
    before.assign(static_cast<std::size_t>(end + kGap), std::byte{0x5a});
    write(before, in_at, inputs_->input(rank), in_count);
    after = before;
    for (std::int64_t done = 0; done < out_count; done += what_.count) {
      const auto block = static_cast<int>(done / what_.count);
      write(after, out_at + done * width_, output_block(rank, block), what_.count);
    }
    CollectiveCall& call = calls_[at];
    call.what = what_;
    call.in = in_count > 0 ? before.data() + in_at : nullptr;
    call.out = out_count > 0 ? before.data() + out_at : nullptr;
  }

  void write(Bytes& bytes, std::int64_t at, const std::byte* from, std::int64_t count) const {
    if (count > 0) std::memcpy(&bytes[at], from, static_cast<std::size_t>(count * width_));
  }

  RanksInTurns& ranks_;
  Algorithm algorithm_;
  std::vector<Bytes> before_;  // of each rank; the kernels' arrays
  std::vector<Bytes> after_;
  std::vector<CollectiveCall> calls_;
  Descriptor what_;
  Reduction by_;
  std::int64_t width_ = 1;
  RankInputs* inputs_ = nullptr;
  std::int64_t runs_ = 0;
  std::string failure_;
};

class KernelOrdersTest : public ::testing::TestWithParam<std::tuple<int, Algorithm>> {};

TEST_P(KernelOrdersTest, EveryOrderGivesTheBitsOfTheDefinition) {
  const auto [size, algorithm] = GetParam();
  RanksInTurns ranks(size);
  Kernels kernels(ranks, algorithm);
  EXPECT_EQ(kernels.run(), "");
  RecordProperty("calls", std::to_string(kernels.runs()));
}

std::vector<std::tuple<int, Algorithm>> all_groups() {
  std::vector<std::tuple<int, Algorithm>> all;
  for (int size = 2; size <= 8; ++size) {
    for (const Algorithm algorithm : kAlgorithms) {
      if (size > 2 || !needs_three_ranks(algorithm)) all.emplace_back(size, algorithm);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Groups, KernelOrdersTest, ::testing::ValuesIn(all_groups()),
                         [](const auto& info) {
                           return std::string(name(std::get<1>(info.param))) + "_of_" +
                                  std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace gantry::protocol
