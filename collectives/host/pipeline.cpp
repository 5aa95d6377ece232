// Large operations of the host transport, chunk by chunk through two stagings.

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/host/chunk_sizes.hpp"
#include "collectives/host/reduce.hpp"
#include "collectives/host/transport.hpp"
#include "collectives/partition.hpp"
#include "collectives/slices.hpp"

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
  plan.sends_one = one_shot_roles(call.what.kind).sends_one;
  plan.reduces = reduces(call.what.kind) && !call.is_uneven();
  for_each_peer(call, rank, size, [&](int, const PeerSlices& slices) {
    plan.sends.push_back(slices.send);
    plan.receives.push_back(slices.receive);
  });
  return plan;
}

namespace {

std::int64_t chunks_of(std::int64_t bytes, std::int64_t each) { return (bytes + each - 1) / each; }

// Returns the bytes from `begin` to the end, at most `most`.
std::int64_t clipped(std::int64_t bytes, std::int64_t begin, std::int64_t most) {
  return std::clamp<std::int64_t>(bytes - begin, 0, most);
}

// The messages of one chunk. Empty ones are not sent.
class Batch {
 public:
  void send(int rank, const std::byte* data, std::int64_t bytes) {
    if (bytes > 0) sends_.push_back({rank, {}, {data, static_cast<std::size_t>(bytes)}});
  }
  void receive(int rank, std::byte* buffer, std::int64_t bytes) {
    if (bytes > 0) receives_.push_back({rank, {buffer, static_cast<std::size_t>(bytes)}});
  }
  void exchange(HostLinks& links) {
    links.exchange(sends_, receives_);
    for (const Incoming& message : receives_) {
      if (message.bytes != message.buffer.size()) {
        throw Error("collective: expected " + std::to_string(message.buffer.size()) +
                    " bytes of rank " + std::to_string(message.rank) + ", but got " +
                    std::to_string(message.bytes));
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

void HostTransport::run_direct(const ResolvedCall& call, const HostPlan& plan,
                               const Stream& stream) {
  enter(call);
  const int ranks = membership_.size;
  const int rank = membership_.rank;
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  const ByteSlice& own_send = plan.sends[as_size(rank)];
  const ByteSlice& own_receive = plan.receives[as_size(rank)];
  if (!plan.reduces && own_receive.bytes > 0 && out + own_receive.at != in + own_send.at) {
    driver().copy(out + own_receive.at, in + own_send.at, as_size(own_receive.bytes),
                  stream.native());
  }
  const std::int64_t chunk_bytes = direct_chunk_bytes(ranks);
  const std::int64_t chunks = chunks_of(plan.longest(rank), chunk_bytes);
  const auto at = [&](int p) { return plan.sends_one ? 0 : p * chunk_bytes; };

  const auto fetch = [&](HostStaging& staging, std::int64_t chunk) {
    for (int p = 0; p < ranks; ++p) {
      if (p == rank && !plan.reduces) continue;
      const ByteSlice& send = plan.sends[as_size(p)];
      staging.fetch(as_size(at(p)), in + send.at + chunk * chunk_bytes,
                    as_size(clipped(send.bytes, chunk * chunk_bytes, chunk_bytes)), stream);
      if (plan.sends_one && send.bytes > 0) break;
    }
  };
  Batch batch;
  for_each_chunk(chunks, stream, fetch, [&](HostStaging& staging, std::int64_t chunk) {
    const std::int64_t begin = chunk * chunk_bytes;
    for (int turn = 1; turn < ranks; ++turn) {
      // Each rank starts with a different peer.
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      batch.send(to, staging.outbound() + at(to),
                 clipped(plan.sends[as_size(to)].bytes, begin, chunk_bytes));
      batch.receive(from, staging.inbound() + from * chunk_bytes,
                    clipped(plan.receives[as_size(from)].bytes, begin, chunk_bytes));
    }
    batch.exchange(entry_.links());
    if (plan.reduces) {
      const std::int64_t bytes = clipped(own_receive.bytes, begin, chunk_bytes);
      std::vector<const void*> inputs;
      for (int p = 0; p < ranks; ++p) {
        inputs.push_back(p == rank ? staging.outbound() + at(p)
                                   : staging.inbound() + p * chunk_bytes);
      }
      std::byte* const result = staging.inbound() + rank * chunk_bytes;
      reduce_on_host(call.how, call.what.scale, result, inputs,
                     bytes / static_cast<std::int64_t>(element_size(call.what.dtype)),
                     call.what.dtype);
      staging.deliver(out + begin, result, as_size(bytes), stream);
    } else {
      for (int p = 0; p < ranks; ++p) {
        if (p == rank) continue;
        const ByteSlice& receive = plan.receives[as_size(p)];
        staging.deliver(out + receive.at + begin, staging.inbound() + p * chunk_bytes,
                        as_size(clipped(receive.bytes, begin, chunk_bytes)), stream);
      }
    }
  });
}

// Note [Two-shot on the host]
// A reduction or broadcast of a large array takes two shots. Each rank is the reducer of one part.
// It receives its part from all senders, reduces it, and sends the result to all receivers. So each
// rank sends and receives about twice the size of the array for any number of ranks, and all links
// carry the same load.
void HostTransport::run_two_shot(const ResolvedCall& call, const Stream& stream) {
  enter(call);
  const Descriptor& what = call.what;
  const int ranks = membership_.size;
  const int rank = membership_.rank;
  const auto width = static_cast<std::int64_t>(element_size(what.dtype));
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  const bool copies = what.kind == CollectiveKind::broadcast;
  const Roles roles = two_shot_roles(what.kind);
  const auto is_sender = [&](int p) { return includes(roles.senders, what.root, p); };
  const auto is_receiver = [&](int p) { return includes(roles.receivers, what.root, p); };
  if (copies && rank == what.root && in != out) {
    driver().copy(out, in, as_size(what.count * width), stream.native());
  }
  const std::int64_t each = two_shot_chunk_elements(ranks, width);
  const std::int64_t chunks = chunks_of(what.count, each);

  const auto fetch = [&](HostStaging& staging, std::int64_t chunk) {
    if (!is_sender(rank)) return;
    staging.fetch(0, in + chunk * each * width,
                  as_size(clipped(what.count, chunk * each, each) * width), stream);
  };
  Batch batch;
  for_each_chunk(chunks, stream, fetch, [&](HostStaging& staging, std::int64_t chunk) {
    const std::int64_t count = clipped(what.count, chunk * each, each);
    const auto part = [&](int p) { return partition(count, ranks, p); };
    const auto address = [&](int p) { return staging.outbound() + part(p).begin * width; };
    const std::int64_t own_bytes = part(rank).count * width;
    for (int turn = 1; turn < ranks; ++turn) {
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      if (is_sender(rank)) batch.send(to, address(to), part(to).count * width);
      if (is_sender(from)) {
        batch.receive(from, copies ? address(rank) : staging.inbound() + from * own_bytes,
                      own_bytes);
      }
    }
    batch.exchange(entry_.links());
    if (!copies) {
      std::vector<const void*> inputs;
      for (int p = 0; p < ranks; ++p) {
        inputs.push_back(p == rank ? address(rank) : staging.inbound() + p * own_bytes);
      }
      reduce_on_host(call.how, what.scale, address(rank), inputs, part(rank).count, what.dtype);
    }
    for (int turn = 1; turn < ranks; ++turn) {
      const int to = (rank + turn) % ranks;
      const int from = (rank + ranks - turn) % ranks;
      if (is_receiver(to)) batch.send(to, address(rank), own_bytes);
      if (is_receiver(rank)) batch.receive(from, address(from), part(from).count * width);
    }
    batch.exchange(entry_.links());
    if (is_receiver(rank)) {
      staging.deliver(out + chunk * each * width, staging.outbound(), as_size(count * width),
                      stream);
    }
  });
}

}  // namespace gantry
