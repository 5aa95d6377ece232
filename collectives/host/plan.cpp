#include "collectives/host/plan.hpp"

#include <algorithm>

namespace gantry {

namespace {

std::int64_t end_of(const std::vector<ByteSlice>& slices) {
  std::int64_t end = 0;
  for (const ByteSlice& slice : slices) {
    if (slice.bytes > 0) end = std::max(end, slice.at + slice.bytes);
  }
  return end;
}

}  // namespace

std::int64_t HostPlan::in_bytes() const { return end_of(sends); }
std::int64_t HostPlan::out_bytes() const { return end_of(receives); }

std::int64_t HostPlan::longest(int rank) const {
  std::int64_t most = 0;
  for (std::size_t p = 0; p < sends.size(); ++p) {
    if (static_cast<int>(p) == rank && !reduces) continue;
    most = std::max({most, sends[p].bytes, receives[p].bytes});
  }
  return most;
}

HostPlan plan_on_host(const CollectiveCall& call, int rank, int size) {
  HostPlan plan;
  plan.sends_one = sends_one_slice(call.what.kind);
  plan.reduces = reduces(call.what.kind);
  for_each_peer(call, rank, size, [&](int, const PeerSlices& slices) {
    plan.sends.push_back(slices.send);
    plan.receives.push_back(slices.receive);
  });
  return plan;
}

}  // namespace gantry
