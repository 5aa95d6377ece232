#include "collectives/p2p/copies.hpp"

#include <algorithm>

#include "collectives/p2p/plans.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "collectives/shares.hpp"
#include "core/flight_file.hpp"

namespace gantry {

namespace {

using protocol::Phase;

// Kernels read registered memory by the word.
constexpr std::int64_t kWord = 16;
// A block that folds less than this is not worth its signals.
constexpr std::int64_t kLeastBlockBytes = 16384;

std::int64_t bytes_of(const Descriptor& what) {
  return what.count * static_cast<std::int64_t>(element_size(what.dtype));
}

int blocks_for(std::int64_t bytes) {
  return static_cast<int>(
      std::clamp<std::int64_t>(bytes / kLeastBlockBytes, 1, protocol::kMaxBlocks));
}

}  // namespace

Copies::Copies(const protocol::Group& group, const Registrations& registrations, int device)
    : group_(group),
      registrations_(registrations),
      side_(Stream::from_pool(Device::cuda(device))),
      forked_(driver().create_event(device, {})),
      joined_(driver().create_event(device, {})) {}

Copies::~Copies() {
  driver().destroy_event(forked_);
  driver().destroy_event(joined_);
}

std::uint64_t Copies::place_of(const CollectiveCall& call) const {
  const Descriptor& what = call.what;
  const std::int64_t bytes = bytes_of(what);
  if (call.is_uneven() || bytes <= 0) return 0;
  std::uint64_t place = 0;
  switch (what.kind) {
    case CollectiveKind::all_reduce:
      if (call.in == call.out) place = registrations_.find(call.in, bytes);
      break;
    case CollectiveKind::all_gather: {
      if (call.in != static_cast<std::byte*>(call.out) + group_.rank * bytes) {
        return registrations_.find(call.in, bytes);
      }
      const std::uint64_t whole = registrations_.find(call.out, bytes * group_.size);
      return whole == 0 ? 0 : whole | flight::kSharesInPlace;
    }
    case CollectiveKind::all_to_all:
      return registrations_.find(call.in, bytes * group_.size);
    case CollectiveKind::reduce_scatter:
      if (bytes % kWord == 0) place = registrations_.find(call.in, bytes * group_.size);
      break;
    default:
      break;
  }
  return place % kWord == 0 ? place : 0;
}

Phase Copies::phase(const CollectiveCall& call, std::uint32_t step) const {
  Phase plan;
  plan.group = group_;
  plan.call = static_cast<std::uint64_t>(call.what.call);
  plan.digest = call.what.hash();
  plan.step = step;
  plan.begins = step == 0;
  return plan;
}

void Copies::run(const CollectiveCall& call, const Stream& stream) {
  reduces(call.what.kind) ? reduce_parts(call, stream) : gather_shares(call, stream);
}

void Copies::gather_shares(const CollectiveCall& call, const Stream& stream) {
  Driver& driver = gantry::driver();
  const int rank = group_.rank;
  auto* out = static_cast<std::byte*>(call.out);
  const auto* in = static_cast<const std::byte*>(call.in);
  const PeerShares own = even_shares(call.what, rank, rank);
  const bool in_place = (call.what.place & flight::kSharesInPlace) != 0;
  if (!in_place) {
    driver.record_event(forked_, stream.native());
    driver.wait_event(side_.native(), forked_);
    driver.copy(out + own.take.at, in + own.offer.at, static_cast<std::size_t>(own.take.bytes),
                side_.native());
    driver.record_event(joined_, side_.native());
  }
  protocol::launch_phase(phase(call, 0), 1, stream);
  // Ranks begin with different peers, so that no link serves all at once.
  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (rank + turn) % group_.size;
    const Share take = even_shares(call.what, rank, peer).take;
    const Share offer = even_shares(call.what, peer, rank).offer;
    const std::int64_t at = in_place ? take.at : offer.at;
    driver.copy(out + take.at, registrations_.address(call.what.place, peer) + at,
                static_cast<std::size_t>(take.bytes), stream.native());
  }
  if (!in_place) driver.wait_event(stream.native(), joined_);
  Phase last = phase(call, 1);
  last.ends = true;
  protocol::launch_phase(last, 1, stream);
}

// Every rank folds its part where the ranks have it, and for an all_reduce gets the others' parts
// from where they were made: in place, since nobody else reads that part there before.
void Copies::reduce_parts(const CollectiveCall& call, const Stream& stream) {
  const bool keeps_part = call.what.kind == CollectiveKind::reduce_scatter;
  const std::int64_t bytes = bytes_of(call.what);
  const std::int64_t even = (bytes + group_.size - 1) / group_.size;
  const std::int64_t part = keeps_part ? bytes : (even + kWord - 1) / kWord * kWord;
  const auto bytes_at = [&](std::int64_t at) {
    return keeps_part ? bytes : protocol::clipped(bytes, at, part);
  };
  const std::int64_t mine = group_.rank * part;
  auto* out = static_cast<std::byte*>(call.out);

  Phase fold = phase(call, 1);
  fold.begins = true;
  fold.ends = keeps_part;
  fold.how = combination(call.what, group_.size);
  fold.out = keeps_part ? out : out + mine;
  fold.bytes = bytes_at(mine);
  for (int peer = 0; peer < group_.size; ++peer) {
    fold.arrays[peer] = registrations_.address(call.what.place, peer) + mine;
  }
  protocol::launch_phase(fold, blocks_for(part), stream);
  if (keeps_part) return;

  for (int turn = 1; turn < group_.size; ++turn) {
    const int peer = (group_.rank + turn) % group_.size;
    const std::int64_t at = peer * part;
    if (bytes_at(at) == 0) continue;
    driver().copy(out + at, registrations_.address(call.what.place, peer) + at,
                  static_cast<std::size_t>(bytes_at(at)), stream.native());
  }
  Phase last = phase(call, 2);
  last.ends = true;
  protocol::launch_phase(last, 1, stream);
}

}  // namespace gantry
