#include "collectives/host/plan.hpp"

#include <algorithm>

namespace gantry {

namespace {

std::int64_t end_of(const std::vector<ByteSlice>& pieces) {
  std::int64_t end = 0;
  for (const ByteSlice& piece : pieces) {
    if (piece.bytes > 0) end = std::max(end, piece.at + piece.bytes);
  }
  return end;
}

}  // namespace

std::int64_t HostPlan::in_bytes() const { return end_of(offers); }
std::int64_t HostPlan::out_bytes() const { return end_of(takes); }

std::int64_t HostPlan::longest(int rank) const {
  std::int64_t most = 0;
  for (std::size_t p = 0; p < offers.size(); ++p) {
    if (static_cast<int>(p) == rank && !folds) continue;
    most = std::max({most, offers[p].bytes, takes[p].bytes});
  }
  return most;
}

HostPlan plan_on_host(const CollectiveCall& call, int rank, int size) {
  HostPlan plan;
  plan.offers_one = sends_one_slice(call.what.kind);
  plan.folds = reduces(call.what.kind);
  for_each_peer(call, rank, size, [&](int, const PeerSlices& slices) {
    plan.offers.push_back(slices.send);
    plan.takes.push_back(slices.receive);
  });
  return plan;
}

}  // namespace gantry
