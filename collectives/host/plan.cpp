#include "collectives/host/plan.hpp"

#include <algorithm>

namespace gantry {

namespace {

std::int64_t end_of(const std::vector<HostPlan::Piece>& pieces) {
  std::int64_t end = 0;
  for (const HostPlan::Piece& piece : pieces) {
    if (piece.bytes > 0) end = std::max(end, piece.at + piece.bytes);
  }
  return end;
}

bool gives_all_the_same(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return false;
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return true;
  }
  __builtin_unreachable();
}

void plan_uneven(HostPlan& plan, const CollectiveCall& call, std::int64_t width) {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (std::size_t p = 0; p < plan.offers.size(); ++p) {
    plan.offers[p] = {sent * width, call.send_counts[p] * width};
    plan.takes[p] = {received * width, call.recv_counts[p] * width};
    sent += call.send_counts[p];
    received += call.recv_counts[p];
  }
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
  const Descriptor& what = call.what;
  const auto width = static_cast<std::int64_t>(element_size(what.dtype));
  HostPlan plan;
  plan.offers.resize(static_cast<std::size_t>(size));
  plan.takes.resize(static_cast<std::size_t>(size));
  plan.offers_one = gives_all_the_same(what.kind);
  plan.folds = reduces(what.kind);
  if (call.is_uneven()) {
    plan_uneven(plan, call, width);
    return plan;
  }
  const std::int64_t bytes = what.count * width;
  const bool is_root = rank == what.root;
  for (int p = 0; p < size; ++p) {
    HostPlan::Piece& offer = plan.offers[static_cast<std::size_t>(p)];
    HostPlan::Piece& take = plan.takes[static_cast<std::size_t>(p)];
    switch (what.kind) {
      case CollectiveKind::all_reduce:
        offer = take = {0, bytes};
        break;
      case CollectiveKind::reduce:
        if (p == what.root) offer = {0, bytes};
        if (is_root) take = {0, bytes};
        break;
      case CollectiveKind::broadcast:
        if (is_root) offer = {0, bytes};
        if (p == what.root) take = {0, bytes};
        break;
      case CollectiveKind::all_gather:
        offer = {0, bytes};
        take = {p * bytes, bytes};
        break;
      case CollectiveKind::reduce_scatter:
        offer = {p * bytes, bytes};
        take = {0, bytes};
        break;
      case CollectiveKind::gather:
        if (p == what.root) offer = {0, bytes};
        if (is_root) take = {p * bytes, bytes};
        break;
      case CollectiveKind::scatter:
        if (is_root) offer = {p * bytes, bytes};
        if (p == what.root) take = {0, bytes};
        break;
      case CollectiveKind::all_to_all:
        offer = take = {p * bytes, bytes};
        break;
      case CollectiveKind::barrier:
      case CollectiveKind::send:
      case CollectiveKind::recv:
        break;
    }
  }
  return plan;
}

}  // namespace gantry
