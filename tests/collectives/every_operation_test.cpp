// Every operation between ranks by every algorithm, for all dtypes, operators and numbers of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/env.hpp>

#include "collectives/selection/selector.hpp"
#include "tests/collectives/call_batch.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/rank_inputs.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/scheduled.hpp"

namespace gantry {
namespace {

using testing::CallBatch;
using testing::Place;
using testing::Reduction;

constexpr int kMostRanks = 8;

// Elements of arrays, and of one rank's slice of them.
struct Sizes {
  std::int64_t array = 0;
  std::int64_t slice = 0;
  std::int64_t skew = 0;  // elements between an aligned address and the arrays
};

// One element, less than there are reducers; some elements at odd addresses; several blocks with a
// rest, which tables of simulated devices give two or three.
std::vector<Sizes> sizes_for(DType dtype, bool is_registered) {
  const auto width = static_cast<std::int64_t>(element_size(dtype));
  // Slices of registered memory are whole words of 16 bytes.
  const std::int64_t word = is_registered ? 16 / width : 1;
  const std::int64_t skew = is_registered ? 0 : 1;
  return {{1, word, 0}, {5, 3 * word, skew}, {3072 / width + 13, 1024 / width + 3 * word, 0}};
}

// Adds calls of one algorithm to a batch, in all forms that the algorithm serves.
class Operations {
 public:
  Operations(CallBatch& batch, Algorithm algorithm)
      : batch_(batch), algorithm_(algorithm), n_(batch.size()) {}

  // All dtypes, operators and sizes. Empty if all results are right.
  std::string run() {
    for (const DType dtype : testing::kAllDTypes) {
      for (const Sizes& sizes : sizes_for(dtype, is_registered())) {
        add_calls(dtype, sizes, testing::reductions_of(dtype));
      }
    }
    run_batch();
    return failure_;
  }

  // Each operation once, on arrays of the largest size.
  std::string run_each_once() {
    add_calls(DType::i32, sizes_for(DType::i32, is_registered()).back(), {{}});
    run_batch();
    return failure_;
  }

 private:
  bool is_registered() const { return needs_registration(algorithm_); }
  bool serves(CollectiveKind kind) const { return can_serve(algorithm_, kind); }

  void add_calls(DType dtype, const Sizes& sizes, const std::vector<Reduction>& reductions) {
    dtype_ = dtype;
    sizes_ = sizes;
    testing::RankInputs inputs(n_, dtype, std::max(sizes.array, sizes.slice * n_));
    inputs_ = &inputs;
    for (const Reduction& by : reductions) add_reductions(by);
    add_moves();
    if (serves(CollectiveKind::send)) add_messages();
  }

  void run_batch() {
    const std::string found = batch_.run();
    if (failure_.empty()) failure_ = found;
  }

  // Places of calls
  Place array() { return batch_.place(dtype_, sizes_.array, sizes_.skew); }
  Place slice() { return batch_.place(dtype_, sizes_.slice, sizes_.skew); }
  Place slices() { return batch_.place(dtype_, sizes_.slice * n_, sizes_.skew); }
  void give_inputs(const Place& place) {
    for (int rank = 0; rank < n_; ++rank) batch_.give(rank, place, inputs_->input(rank));
  }
  void add(std::string_view what, std::string_view details, CallBatch::Call call) {
    batch_.add(fmt::format("{} {} {}[{}] by {}", what, details, name(dtype_), sizes_.array,
                           name(algorithm_)),
               std::move(call));
    constexpr std::int64_t kMostPlaces = 4 * 1024 * (kMostRanks + 1);
    if (batch_.is_full(kMostPlaces)) run_batch();
  }
  // The first and the last rank.
  template <class F>
  void for_each_root(const F& f) {
    for (const int root : {0, n_ - 1}) f(root);
  }

  // Reductions
  void add_reductions(const Reduction& by) {
    const std::string details =
        std::string(name(by.op)) + (by.scale == 1 ? "" : fmt::format(" x{}", by.scale));
    const CollectiveOptions options{.scale = by.scale};
    if (serves(CollectiveKind::all_reduce)) add_all_reduces(by, details, options);
    if (serves(CollectiveKind::reduce)) {
      for_each_root([&](int root) { add_reduces(by, root, details, options); });
    }
    if (serves(CollectiveKind::reduce_scatter)) add_reduce_scatters(by, details, options);
  }

  void add_all_reduces(const Reduction& by, const std::string& details,
                       const CollectiveOptions& options) {
    const Place one = array();
    give_inputs(one);
    for (int rank = 0; rank < n_; ++rank) batch_.expect(rank, one, inputs_->reduced(by));
    add("all_reduce", details, [=](const Communicator& rank, const CallBatch::View& view) {
      rank.all_reduce(view(one), by.op, options);
    });
    if (is_registered()) return;
    const Place in = array();
    const Place out = array();
    give_inputs(in);
    for (int rank = 0; rank < n_; ++rank) batch_.expect(rank, out, inputs_->reduced(by));
    add("all_reduce apart", details, [=](const Communicator& rank, const CallBatch::View& view) {
      rank.all_reduce(view(out), view(in), by.op, options);
    });
    const Place first = array();
    const Place second = slice();
    for (const Place& place : {first, second}) {
      give_inputs(place);
      for (int rank = 0; rank < n_; ++rank) batch_.expect(rank, place, inputs_->reduced(by));
    }
    add("all_reduce_coalesced", details,
        [=](const Communicator& rank, const CallBatch::View& view) {
          const Tensor tensors[] = {view(first), view(second)};
          rank.all_reduce_coalesced(tensors, by.op, options);
        });
  }

  void add_reduces(const Reduction& by, int root, const std::string& details,
                   const CollectiveOptions& options) {
    const std::string text = fmt::format("to {} {}", root, details);
    const Place one = array();
    give_inputs(one);
    batch_.expect(root, one, inputs_->reduced(by));
    add("reduce", text, [=](const Communicator& rank, const CallBatch::View& view) {
      rank.reduce(view(one), root, by.op, options);
    });
    if (is_registered()) return;
    const Place in = array();
    const Place out = array();
    give_inputs(in);
    batch_.expect(root, out, inputs_->reduced(by));
    add("reduce apart", text, [=](const Communicator& rank, const CallBatch::View& view) {
      rank.reduce(rank.rank() == root ? view(out) : Tensor(), view(in), root, by.op, options);
    });
  }

  void add_reduce_scatters(const Reduction& by, const std::string& details,
                           const CollectiveOptions& options) {
    const auto expect_slices = [&](const auto& place_of) {
      for (int rank = 0; rank < n_; ++rank) {
        batch_.expect(rank, place_of(rank), inputs_->reduced(by, rank * sizes_.slice));
      }
    };
    const Place in = slices();
    const Place out = slice();
    give_inputs(in);
    expect_slices([&](int) { return out; });
    add("reduce_scatter", details, [=](const Communicator& rank, const CallBatch::View& view) {
      rank.reduce_scatter(view(out), view(in), by.op, options);
    });
    const Place whole = slices();
    give_inputs(whole);
    expect_slices([&](int rank) { return whole.part(rank, sizes_.slice); });
    add("reduce_scatter into a slice", details,
        [=, size = sizes_.slice](const Communicator& rank, const CallBatch::View& view) {
          rank.reduce_scatter(view(whole.part(rank.rank(), size)), view(whole), by.op, options);
        });
  }

  // Operations that move elements
  void add_moves() {
    if (serves(CollectiveKind::barrier)) {
      add("barrier", "", [](const Communicator& rank, const CallBatch::View&) { rank.barrier(); });
    }
    if (serves(CollectiveKind::broadcast)) {
      for_each_root([&](int root) { add_broadcast(root); });
    }
    if (serves(CollectiveKind::all_gather)) add_gathers(-1);
    if (serves(CollectiveKind::gather)) {
      for_each_root([&](int root) { add_gathers(root); });
    }
    if (serves(CollectiveKind::scatter)) {
      for_each_root([&](int root) { add_scatters(root); });
    }
    if (!serves(CollectiveKind::all_to_all)) return;
    add_all_to_alls();
    if (algorithm_ == Algorithm::one_shot) add_uneven_all_to_all();
  }

  void add_broadcast(int root) {
    const Place one = array();
    give_inputs(one);
    for (int rank = 0; rank < n_; ++rank) batch_.expect(rank, one, inputs_->input(root));
    add("broadcast", fmt::format("from {}", root),
        [=](const Communicator& rank, const CallBatch::View& view) {
          rank.broadcast(view(one), root);
        });
    if (is_registered()) return;
    const Place in = array();
    const Place out = array();
    give_inputs(in);
    for (int rank = 0; rank < n_; ++rank) batch_.expect(rank, out, inputs_->input(root));
    add("broadcast apart", fmt::format("from {}", root),
        [=](const Communicator& rank, const CallBatch::View& view) {
          rank.broadcast(view(out), rank.rank() == root ? view(in) : Tensor(), root);
        });
  }

  // Of all ranks to all, or to `root`.
  void add_gathers(int root) {
    const std::int64_t size = sizes_.slice;
    const auto expect_joined = [&](const Place& out) {
      for (int rank = 0; rank < n_; ++rank) {
        if (root >= 0 && rank != root) continue;
        for (int p = 0; p < n_; ++p) batch_.expect(rank, out.part(p, size), inputs_->input(p));
      }
    };
    const auto call_on = [=](const auto& in_of, const Place& out) {
      return [=](const Communicator& rank, const CallBatch::View& view) {
        const Tensor in = view(in_of(rank.rank()));
        if (root < 0) {
          rank.all_gather(view(out), in);
        } else {
          rank.gather(rank.rank() == root ? view(out) : Tensor(), in, root);
        }
      };
    };
    const std::string text = root < 0 ? "" : fmt::format("to {}", root);
    const Place in = slice();
    const Place out = slices();
    give_inputs(in);
    expect_joined(out);
    add(root < 0 ? "all_gather" : "gather", text, call_on([=](int) { return in; }, out));
    const Place whole = slices();
    for (int rank = 0; rank < n_; ++rank) {
      batch_.give(rank, whole.part(rank, size), inputs_->input(rank));
    }
    expect_joined(whole);
    add(root < 0 ? "all_gather of a slice" : "gather of a slice", text,
        call_on([=](int rank) { return whole.part(rank, size); }, whole));
  }

  void add_scatters(int root) {
    const std::int64_t size = sizes_.slice;
    const std::string text = fmt::format("from {}", root);
    const auto call_on = [=](const Place& in, const auto& out_of) {
      return [=](const Communicator& rank, const CallBatch::View& view) {
        rank.scatter(view(out_of(rank.rank())), rank.rank() == root ? view(in) : Tensor(), root);
      };
    };
    const auto expect_slices = [&](const auto& out_of) {
      for (int rank = 0; rank < n_; ++rank) {
        batch_.expect(rank, out_of(rank), inputs_->input(root, rank * size));
      }
    };
    const Place in = slices();
    const Place out = slice();
    give_inputs(in);
    expect_slices([&](int) { return out; });
    add("scatter", text, call_on(in, [=](int) { return out; }));
    const Place whole = slices();
    give_inputs(whole);
    expect_slices([&](int rank) { return whole.part(rank, size); });
    add("scatter into a slice", text,
        call_on(whole, [=](int rank) { return whole.part(rank, size); }));
  }

  void add_all_to_alls() {
    const std::int64_t size = sizes_.slice;
    const auto expect_blocks = [&](const Place& out) {
      for (int rank = 0; rank < n_; ++rank) {
        for (int p = 0; p < n_; ++p) {
          batch_.expect(rank, out.part(p, size), inputs_->input(p, rank * size));
        }
      }
    };
    const Place in = slices();
    const Place out = slices();
    give_inputs(in);
    expect_blocks(out);
    add("all_to_all", "", [=](const Communicator& rank, const CallBatch::View& view) {
      rank.all_to_all(view(out), view(in));
    });
    const Place one = slices();
    give_inputs(one);
    expect_blocks(one);
    add("all_to_all in place", "", [=](const Communicator& rank, const CallBatch::View& view) {
      rank.all_to_all(view(one), view(one));
    });
  }

  // Rank i sends (i + 2 j) % 4 thirds of a slice to rank j.
  void add_uneven_all_to_all() {
    const std::int64_t size = sizes_.slice;
    const auto count = [size](int from, int to) { return (from + 2 * to) % 4 * size / 3; };
    const auto sum = [](const std::vector<std::int64_t>& counts) {
      std::int64_t all = 0;
      for (const std::int64_t one : counts) all += one;
      return all;
    };
    const auto counts_of = [n = n_, count](int rank, bool sent) {
      std::vector<std::int64_t> counts;
      for (int p = 0; p < n; ++p) counts.push_back(sent ? count(rank, p) : count(p, rank));
      return counts;
    };
    const Place in = slices();
    const Place out = slices();
    give_inputs(in);
    for (int rank = 0; rank < n_; ++rank) {
      Place next{out.at, 0, dtype_};
      for (int p = 0; p < n_; ++p) {
        const std::vector<std::int64_t> theirs = counts_of(p, true);
        next.count = theirs[static_cast<std::size_t>(rank)];
        const std::vector<std::int64_t> before(theirs.begin(), theirs.begin() + rank);
        batch_.expect(rank, next, inputs_->input(p, sum(before)));
        next.at += next.count * static_cast<std::int64_t>(element_size(dtype_));
      }
    }
    add("all_to_all of unequal blocks", "",
        [=](const Communicator& rank, const CallBatch::View& view) {
          const std::vector<std::int64_t> sent = counts_of(rank.rank(), true);
          const std::vector<std::int64_t> received = counts_of(rank.rank(), false);
          rank.all_to_all(view({out.at, sum(received), out.dtype}),
                          view({in.at, sum(sent), in.dtype}), received, sent);
        });
  }

  // Messages around the ring: one after the other, as one call, and as a group.
  void add_messages() {
    const auto add_ring = [&](std::string_view what, const auto& exchange) {
      const Place out = array();
      const Place in = array();
      give_inputs(out);
      for (int rank = 0; rank < n_; ++rank) {
        batch_.expect(rank, in, inputs_->input((rank + n_ - 1) % n_));
      }
      add(what, "", [=, n = n_](const Communicator& rank, const CallBatch::View& view) {
        exchange(rank, view(out), (rank.rank() + 1) % n, view(in), (rank.rank() + n - 1) % n);
      });
    };
    add_ring("send and recv",
             [](const Communicator& rank, const Tensor& out, int to, const Tensor& in, int from) {
               rank.send(out, to);
               rank.recv(in, from);
             });
    add_ring("send_recv", [](const Communicator& rank, const Tensor& out, int to, const Tensor& in,
                             int from) { rank.send_recv(out, to, in, from); });
    add_ring("group",
             [](const Communicator& rank, const Tensor& out, int to, const Tensor& in, int from) {
               const auto messages = rank.group();
               rank.send(out, to);
               rank.recv(in, from);
             });
  }

  CallBatch& batch_;
  Algorithm algorithm_;
  int n_;
  DType dtype_ = DType::u8;
  Sizes sizes_;
  testing::RankInputs* inputs_ = nullptr;
  std::string failure_;
};

std::vector<Algorithm> algorithms_of_p2p() {
  std::vector<Algorithm> all;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (algorithm != Algorithm::nccl && algorithm != Algorithm::host) all.push_back(algorithm);
  }
  return all;
}

class EveryOperationTest : public testing::LocalGroupTest,
                           public ::testing::WithParamInterface<std::tuple<int, Algorithm>> {};

TEST_P(EveryOperationTest, HasTheBitsOfTheDefinition) {
  const auto [ranks, algorithm] = GetParam();
  GANTRY_REQUIRE_DEVICES(ranks);
  setenv("GANTRY_COLL_ALGO", std::string(name(algorithm)).c_str(), 1);
  ::testing::internal::CaptureStderr();
  {
    const std::vector<Communicator> group = Communicator::local(devices(ranks));
    CallBatch batch(group);
    if (needs_registration(algorithm)) {
      testing::rank_threads(ranks, [&](int rank) {
        group[static_cast<std::size_t>(rank)].register_memory(batch.array(rank));
      });
    }
    Operations operations(batch, algorithm);
    // A call takes milliseconds under a schedule. Elements change nothing about the order of tasks.
    const bool is_whole = !testing::is_scheduled() || env::get_int("GANTRY_TEST_ROUNDS", 1, 2) == 2;
    EXPECT_EQ(is_whole ? operations.run() : operations.run_each_once(), "");
    RecordProperty("calls", static_cast<int>(batch.added()));
  }
  // No call went by another algorithm.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::Not(::testing::HasSubstr("goes by")));
}

std::vector<std::tuple<int, Algorithm>> all_groups() {
  std::vector<std::tuple<int, Algorithm>> all;
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    for (const Algorithm algorithm : algorithms_of_p2p()) {
      if (ranks > 2 || !needs_three_ranks(algorithm)) all.emplace_back(ranks, algorithm);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Groups, EveryOperationTest, ::testing::ValuesIn(all_groups()),
                         [](const auto& info) {
                           return std::string(name(std::get<1>(info.param))) + "_of_" +
                                  std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace gantry
