// Large operations of the host transport, step by step through two stagings.
#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>

#include "collectives/comm/partition.hpp"
#include "collectives/host/transport.hpp"

namespace gantry {

namespace {

// Pieces begin at multiples of this.
constexpr std::int64_t kGrain = 64;
// Elements by which arrays are dealt to owners; as partition() does.
constexpr std::int64_t kOwnerGrain = 256;
// Bytes of one piece between two ranks.
constexpr std::int64_t kMessageBytes = std::int64_t{1} << 20;

std::int64_t steps_of(std::int64_t bytes, std::int64_t each) { return (bytes + each - 1) / each; }

// What is left of `bytes` from `begin` on, at most `most`.
std::int64_t clipped(std::int64_t bytes, std::int64_t begin, std::int64_t most) {
  return std::clamp<std::int64_t>(bytes - begin, 0, most);
}

// The messages of one step. Empty ones are not sent.
class Batch {
 public:
  void send(int rank, const std::byte* data, std::int64_t bytes) {
    if (bytes > 0) sends_.push_back({rank, {}, {data, static_cast<std::size_t>(bytes)}});
  }
  void receive(int rank, std::byte* room, std::int64_t bytes) {
    if (bytes > 0) receives_.push_back({rank, {room, static_cast<std::size_t>(bytes)}});
  }
  void exchange(HostLinks& links) {
    links.exchange(sends_, receives_);
    for (const Incoming& message : receives_) {
      if (message.bytes != message.room.size()) {
        throw Error("collective: rank " + std::to_string(message.rank) + " sent " +
                    std::to_string(message.bytes) + " bytes, but " +
                    std::to_string(message.room.size()) + " were expected");
      }
    }
    sends_.clear();
    receives_.clear();
  }

 private:
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

std::size_t as_size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

void HostTransport::run_straight(const CollectiveCall& call, const HostPlan& plan,
                                 const Stream& stream) {
  enter(call);
  const int ranks = membership_.size;
  const int rank = membership_.rank;
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  const ByteSlice& own_offer = plan.offers[as_size(rank)];
  const ByteSlice& own_take = plan.takes[as_size(rank)];
  if (!plan.folds && own_take.bytes > 0 && out + own_take.at != in + own_offer.at) {
    driver().copy(out + own_take.at, in + own_offer.at, as_size(own_take.bytes), stream.native());
  }
  const auto area = static_cast<std::int64_t>(staging(0).bytes());
  const std::int64_t piece = std::min(kMessageBytes, area / ranks / kGrain * kGrain);
  const std::int64_t steps = steps_of(plan.longest(rank), piece);
  const auto at = [&](int p) { return plan.offers_one ? 0 : p * piece; };

  const auto stage = [&](std::int64_t step) {
    HostStaging& staging = this->staging(step);
    staging.begin(stream);
    for (int p = 0; p < ranks; ++p) {
      if (p == rank && !plan.folds) continue;
      const ByteSlice& offer = plan.offers[as_size(p)];
      staging.fetch(as_size(at(p)), in + offer.at + step * piece,
                    as_size(clipped(offer.bytes, step * piece, piece)), stream);
      if (plan.offers_one && offer.bytes > 0) break;
    }
    staging.fetched(stream);
  };
  Batch batch;
  if (steps > 0) stage(0);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) stage(step + 1);
    HostStaging& staging = this->staging(step);
    const std::int64_t begin = step * piece;
    staging.await();
    for (int turn = 1; turn < ranks; ++turn) {
      // Every rank begins with another one.
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      batch.send(to, staging.outbound() + at(to),
                 clipped(plan.offers[as_size(to)].bytes, begin, piece));
      batch.receive(from, staging.inbound() + from * piece,
                    clipped(plan.takes[as_size(from)].bytes, begin, piece));
    }
    batch.exchange(entry_.links());
    if (plan.folds) {
      const std::int64_t bytes = clipped(own_take.bytes, begin, piece);
      std::vector<const void*> inputs;
      for (int p = 0; p < ranks; ++p) {
        inputs.push_back(p == rank ? staging.outbound() + at(p) : staging.inbound() + p * piece);
      }
      std::byte* const result = staging.inbound() + rank * piece;
      fold(call.what, result, inputs,
           bytes / static_cast<std::int64_t>(element_size(call.what.dtype)));
      staging.deliver(out + begin, result, as_size(bytes), stream);
    } else {
      for (int p = 0; p < ranks; ++p) {
        if (p == rank) continue;
        const ByteSlice& take = plan.takes[as_size(p)];
        staging.deliver(out + take.at + begin, staging.inbound() + p * piece,
                        as_size(clipped(take.bytes, begin, piece)), stream);
      }
    }
    staging.finish(stream);
  }
}

// Note [Owners on the host]
// An array that all ranks reduce, or that one gives to all, is dealt to owners, a part for each:
// they get their part from all sources, fold it, and give it to all takers. So every rank sends and
// receives about two arrays, however many ranks there are, and no rank's link is used more than
// others.
void HostTransport::run_relay(const CollectiveCall& call, const Stream& stream) {
  enter(call);
  const Descriptor& what = call.what;
  const int ranks = membership_.size;
  const int rank = membership_.rank;
  const auto width = static_cast<std::int64_t>(element_size(what.dtype));
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  const bool copies = what.kind == CollectiveKind::broadcast;
  const auto is_source = [&](int p) { return !copies || p == what.root; };
  const auto is_taker = [&](int p) {
    return copies ? p != what.root : what.kind == CollectiveKind::all_reduce || p == what.root;
  };
  if (copies && rank == what.root && in != out) {
    driver().copy(out, in, as_size(what.count * width), stream.native());
  }
  const std::int64_t dealt = ranks * kOwnerGrain;
  const std::int64_t each = static_cast<std::int64_t>(staging(0).bytes()) / width / dealt * dealt;
  const std::int64_t steps = steps_of(what.count, each);

  const auto stage = [&](std::int64_t step) {
    HostStaging& staging = this->staging(step);
    staging.begin(stream);
    if (is_source(rank)) {
      staging.fetch(0, in + step * each * width,
                    as_size(clipped(what.count, step * each, each) * width), stream);
    }
    staging.fetched(stream);
  };
  Batch batch;
  stage(0);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) stage(step + 1);
    HostStaging& staging = this->staging(step);
    const std::int64_t count = clipped(what.count, step * each, each);
    const auto part = [&](int p) { return partition(count, ranks, p); };
    const auto place = [&](int p) { return staging.outbound() + part(p).begin * width; };
    const std::int64_t own_bytes = part(rank).count * width;
    staging.await();
    for (int turn = 1; turn < ranks; ++turn) {
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      if (is_source(rank)) batch.send(to, place(to), part(to).count * width);
      if (is_source(from)) {
        batch.receive(from, copies ? place(rank) : staging.inbound() + from * own_bytes, own_bytes);
      }
    }
    batch.exchange(entry_.links());
    if (!copies) {
      std::vector<const void*> inputs;
      for (int p = 0; p < ranks; ++p) {
        inputs.push_back(p == rank ? place(rank) : staging.inbound() + p * own_bytes);
      }
      fold(what, place(rank), inputs, part(rank).count);
    }
    for (int turn = 1; turn < ranks; ++turn) {
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      if (is_taker(to)) batch.send(to, place(rank), own_bytes);
      if (is_taker(rank)) batch.receive(from, place(from), part(from).count * width);
    }
    batch.exchange(entry_.links());
    if (is_taker(rank)) {
      staging.deliver(out + step * each * width, staging.outbound(), as_size(count * width),
                      stream);
    }
    staging.finish(stream);
  }
}

}  // namespace gantry
