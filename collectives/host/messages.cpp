// A single send or recv.
#include <algorithm>
#include <cstring>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/host/staging.hpp"
#include "collectives/host/transport.hpp"

namespace gantry {

namespace {

std::int64_t chunks_of(std::int64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

}  // namespace

void HostTransport::send(const CollectiveCall& call, const Stream& stream) {
  const auto* in = static_cast<const std::byte*>(call.in);
  const std::int64_t bytes = call.what.bytes();
  if (static_cast<std::size_t>(bytes) <= entry_.body_limit()) {
    const auto size = static_cast<std::size_t>(bytes);
    small_.begin(stream);
    small_.fetch(0, in, size, stream);
    small_.fetched(stream);
    small_.await();
    entry_.send_message(call.what, {small_.outbound(), size}, true);
    small_.finish(stream);
    return;
  }
  try {
    entry_.send_message(call.what, {}, false);
  } catch (const TimeoutError& error) {
    throw TimeoutError(std::string(error.what()) + kSendRemedy, error.ranks());
  }
  const auto fetch = [&](HostStaging& staging, std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunkBytes;
    staging.fetch(kChunkDataOffset, in + begin, chunk_bytes(bytes, begin), stream);
  };
  for_each_chunk(chunks_of(bytes), stream, fetch, [&](HostStaging& staging, std::int64_t chunk) {
    write_chunk_frame(staging.outbound(), call.what);
    const Outgoing message{
        call.what.root,
        {},
        chunk_range(staging.outbound(), chunk_bytes(bytes, chunk * kChunkBytes))};
    entry_.links().exchange({&message, 1}, {});
  });
}

void HostTransport::receive(const CollectiveCall& call, const Stream& stream) {
  auto* out = static_cast<std::byte*>(call.out);
  const std::int64_t bytes = call.what.bytes();
  synchronize(stream);
  if (const auto body = entry_.receive_message(call.what)) {
    if (body->size() != static_cast<std::size_t>(bytes)) {
      throw Error("recv: a message is shorter than its call says");
    }
    std::copy(body->begin(), body->end(), small_.inbound());
    small_.deliver(out, small_.inbound(), body->size(), stream);
    small_.finish(stream);
    return;
  }
  const int from = call.what.root;
  const auto fetch = [](HostStaging&, std::int64_t) {};
  for_each_chunk(chunks_of(bytes), stream, fetch, [&](HostStaging& staging, std::int64_t chunk) {
    const std::size_t part = chunk_bytes(bytes, chunk * kChunkBytes);
    // Other frames may arrive here too.
    const auto range = chunk_range(staging.inbound(), std::max(part, entry_.body_limit()));
    for (;;) {
      Incoming message{from, range};
      entry_.links().exchange({}, {&message, 1});
      const bool is_chunk = message.bytes == sizeof(HostFrame) + part;
      if (is_chunk && read_frame(range).kind == HostFrame::Kind::chunk) break;
      // The sender answers an earlier message in between.
      std::memcpy(entry_.buffer(from).data(), range.data(),
                  std::min(message.bytes, entry_.buffer(from).size()));
      (void)entry_.check_frame(from, message.bytes);
      if (!entry_.keep_frame(from)) throw Error("recv: expected data, but got another call");
    }
    staging.deliver(out + chunk * kChunkBytes, staging.inbound() + kChunkDataOffset, part, stream);
  });
}

}  // namespace gantry
