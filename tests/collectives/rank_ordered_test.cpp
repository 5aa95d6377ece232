// Reductions of a transport that only sends messages.
#include "collectives/hierarchical/rank_ordered.hpp"

#include <gtest/gtest.h>

#include <cstddef>

#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/reduction_checks.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using testing::check_reductions;
using testing::HostRank;

// No multiple of anything.
constexpr std::size_t kCount = 8'209;

// Reduces by messages alone, as where a library moves the bytes.
class RankOrderedTransport final : public Transport {
 public:
  RankOrderedTransport(HostTransport& wrapped, const Membership& me) : wrapped_(wrapped), me_(me) {}
  std::string_view name() const override { return "rank-ordered"; }
  End run(const ResolvedCall& call, const Stream& stream) override {
    constexpr std::int64_t kScratchBytes = 9000;  // several rounds, and a last one that is shorter
    reduce_in_rank_order(
        call, me_, stream,
        [&](std::span<const ResolvedCall> messages) { run_together(messages, stream); },
        kScratchBytes);
    return {};
  }
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    return wrapped_.run_together(messages, stream);
  }

 private:
  HostTransport& wrapped_;
  Membership me_;
};

TEST(RankOrderedTest, MessagesAndReductionsGiveTheBitsOfTheDefinition) {
  GANTRY_REQUIRE_DEVICES(1);
  testing::host_ranks(4, [](HostRank& self) {
    RankOrderedTransport ordered(*self.transport, {self.rank, self.size, self.device});
    for (const std::size_t count : {std::size_t{1}, std::size_t{3}, kCount}) {
      check_reductions(self, ordered, DType::f32, ReduceOp::sum, count);
      check_reductions(self, ordered, DType::f16, ReduceOp::sum, count);
      check_reductions(self, ordered, DType::bf16, ReduceOp::avg, count);
      check_reductions(self, ordered, DType::f64, ReduceOp::sum, count, 0.3);
      check_reductions(self, ordered, DType::i16, ReduceOp::sum, count);
      check_reductions(self, ordered, DType::u8, ReduceOp::bxor, count);
      check_reductions(self, ordered, DType::f32, ReduceOp::max, count);
    }
  });
}

}  // namespace
}  // namespace gantry
