// A send or a recv by itself.
#include <algorithm>
#include <cstring>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/host/piece.hpp"
#include "collectives/host/transport.hpp"

namespace gantry {

namespace {

std::int64_t bytes_of(const Descriptor& what) {
  return what.count * static_cast<std::int64_t>(element_size(what.dtype));
}

}  // namespace

void HostTransport::send(const CollectiveCall& call, const Stream& stream) {
  const auto* in = static_cast<const std::byte*>(call.in);
  const std::int64_t bytes = bytes_of(call.what);
  if (static_cast<std::size_t>(bytes) <= entry_.body_limit()) {
    const auto size = static_cast<std::size_t>(bytes);
    small_.begin(stream);
    small_.fetch(0, in, size, stream);
    small_.fetched(stream);
    small_.await();
    entry_.offer(call.what, {small_.outbound(), size}, true);
    small_.finish(stream);
    return;
  }
  const auto stage = [&](std::int64_t step) {
    HostStaging& staging = this->staging(step);
    const std::int64_t begin = step * kPieceBytes;
    staging.begin(stream);
    staging.fetch(kPieceDataAt, in + begin, piece_bytes(bytes, begin), stream);
    staging.fetched(stream);
  };
  try {
    entry_.offer(call.what, {}, false);
  } catch (const TimeoutError& error) {
    throw TimeoutError(std::string(error.what()) + kSendRemedy, error.ranks());
  }
  const std::int64_t steps = (bytes + kPieceBytes - 1) / kPieceBytes;
  stage(0);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) stage(step + 1);
    HostStaging& staging = this->staging(step);
    staging.await();
    write_piece_frame(staging.outbound(), call.what);
    const Outgoing piece{call.what.root,
                         {},
                         piece_range(staging.outbound(), piece_bytes(bytes, step * kPieceBytes))};
    entry_.links().exchange({&piece, 1}, {});
    staging.finish(stream);
  }
}

void HostTransport::receive(const CollectiveCall& call, const Stream& stream) {
  auto* out = static_cast<std::byte*>(call.out);
  const std::int64_t bytes = bytes_of(call.what);
  synchronize(stream);
  if (const auto body = entry_.take(call.what)) {
    if (body->size() != static_cast<std::size_t>(bytes)) {
      throw Error("recv: a message is shorter than its call says");
    }
    std::copy(body->begin(), body->end(), small_.inbound());
    small_.deliver(out, small_.inbound(), body->size(), stream);
    small_.finish(stream);
    return;
  }
  const int from = call.what.root;
  const std::int64_t steps = (bytes + kPieceBytes - 1) / kPieceBytes;
  for (std::int64_t step = 0; step < steps; ++step) {
    HostStaging& staging = this->staging(step);
    staging.begin(stream);
    staging.fetched(stream);
    staging.await();
    const std::size_t part = piece_bytes(bytes, step * kPieceBytes);
    // Other frames may come here, too.
    const auto range = piece_range(staging.inbound(), std::max(part, entry_.body_limit()));
    for (;;) {
      Incoming message{from, range};
      entry_.links().exchange({}, {&message, 1});
      const bool is_piece = message.bytes == sizeof(HostFrame) + part;
      if (is_piece && read_frame(range).kind == HostFrame::Kind::piece) break;
      // The sender answers an earlier message meanwhile.
      std::memcpy(entry_.room(from).data(), range.data(),
                  std::min(message.bytes, entry_.room(from).size()));
      (void)entry_.note_frame(from, message.bytes);
      if (!entry_.keep_frame(from)) throw Error("recv: expected data, but got another call");
    }
    staging.deliver(out + step * kPieceBytes, staging.inbound() + kPieceDataAt, part, stream);
    staging.finish(stream);
  }
}

}  // namespace gantry
