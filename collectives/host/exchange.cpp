// Concurrent sends and receives, through the host.
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "collectives/host/staging.hpp"
#include "collectives/host/transport.hpp"

namespace gantry {

namespace {

// Note [Groups on the host]
// Each message has the protocol of send() and receive(), so the peer may use a group or single
// calls. Messages with several peers make progress independently. The receiver rejects a mismatched
// message, and the others complete. A peer that is in a collective instead sends no more messages.
// Once the other messages are done, this rank enters that collective with its own call, so that all
// ranks find the mismatch.
class MessageHandler final : public ExchangeHandler {
 public:
  MessageHandler(HostEntry& entry, int rank, int size, const Stream& stream)
      : entry_(entry), rank_(rank), stream_(stream), peers_(static_cast<std::size_t>(size)) {}
  ~MessageHandler() override {
    if (!is_over_) abandon();
  }

  void add(const CollectiveCall& call) {
    Peer& other = peer(call.what.root);
    const auto bytes = static_cast<std::size_t>(call.what.bytes());
    if (call.what.kind == CollectiveKind::recv) {
      other.receives.push_back({call, bytes, {}});
    } else {
      other.sends.push_back({call, bytes, {}});
    }
  }

  // Fetches the data of small messages, which are sent eagerly, and starts the exchange.
  void begin() {
    for (Peer& other : peers_) {
      for (Part& part : other.sends) {
        if (!is_small(part)) continue;
        part.memory = memory::pinned(part.bytes);
        copy(part.memory.data(), part.call.in, part.bytes);
      }
    }
    stream_.record().synchronize();
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      announce(rank);
      match_unexpected(rank);
      listen(rank);
    }
  }

  void sent(int rank) override {
    Peer& other = peer(rank);
    const bool is_chunk = other.queued.front().empty();
    other.queued.pop_front();
    if (!is_chunk) return;
    Part& part = other.sends.front();
    if (other.sent_bytes < part.bytes) return send_chunk(rank);
    other.sends.pop_front();
    other.sends_data = false;
    announce(rank);
    listen(rank);
  }

  void received(int rank, std::size_t bytes) override {
    Peer& other = peer(rank);
    other.is_listening = false;
    if (other.receives_data) {
      const auto range = chunk_range(data_of(other.receives.front()), buffer_bytes(other));
      if (bytes >= sizeof(HostFrame) && read_frame(range).kind == HostFrame::Kind::chunk) {
        receive_chunk(rank, bytes - sizeof(HostFrame));
        return listen(rank);
      }
      std::memcpy(entry_.buffer(rank).data(), range.data(),
                  std::min(bytes, entry_.buffer(rank).size()));
    }
    take_frame(rank, bytes);
    listen(rank);
  }

  // Throws the mismatch of a message, if there is one.
  void finish() {
    // Copies must not read or write freed memory.
    stream_.record().synchronize();
    is_over_ = true;
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      if (!peer(rank).in_collective) continue;
      std::vector<int> withdrawn;
      for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
        if (peer(other).awaits_accept) withdrawn.push_back(other);
      }
      const Peer& gone = peer(rank);
      const auto& parts = gone.sends.empty() ? gone.receives : gone.sends;
      entry_.enter_mismatched(parts.front().call.what, rank, withdrawn);
    }
    if (!rejected_) return;
    const auto& [sender, sent, receiver, received] = *rejected_;
    HostEntry::throw_mismatch(sender, sent, receiver, received);
  }

 private:
  struct Part {
    CollectiveCall call;
    std::size_t bytes;
    memory::Buffer memory;
  };
  struct Peer {
    std::deque<Part> sends;
    std::deque<Part> receives;
    std::uint64_t number = 0;    // of the last announced message
    bool awaits_accept = false;  // the first send awaits an accept
    bool sends_data = false;
    bool receives_data = false;
    bool is_listening = false;
    bool in_collective = false;  // the peer is in a collective
    std::size_t sent_bytes = 0;
    std::size_t received_bytes = 0;
    // Messages being sent: frames, or an empty entry for a chunk.
    std::deque<std::vector<std::byte>> queued;
  };
  struct Rejection {
    int sender;
    Descriptor sent;
    int receiver;
    Descriptor received;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_small(const Part& part) const { return part.bytes <= entry_.body_limit(); }
  static std::byte* data_of(const Part& part) {
    return static_cast<std::byte*>(part.memory.data());
  }
  // The data size of a chunk's receive buffer, which other frames may arrive in too.
  std::size_t buffer_bytes(const Peer& other) const {
    return std::max(entry_.body_limit(),
                    std::min<std::size_t>(other.receives.front().bytes, std::size_t{kChunkBytes}));
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) driver().copy(to, from, bytes, stream_.native());
  }

  // After a failure copies may be under way, and links may still use the messages' memory.
  void abandon() noexcept {
    try {
      stream_.record().synchronize();
    } catch (...) {
      // A device in error no longer copies.
    }
    if (!entry_.links().release_memory()) new std::vector<Peer>(std::move(peers_));
  }

  void send_frame(int rank, const HostFrame& frame, const void* body, std::size_t bytes) {
    std::vector<std::byte>& packet = peer(rank).queued.emplace_back(sizeof frame + bytes);
    std::memcpy(packet.data(), &frame, sizeof frame);
    if (bytes > 0) std::memcpy(packet.data() + sizeof frame, body, bytes);
    send(rank, packet);
  }

  // Announces the next sends to `rank`, up to the first large one.
  void announce(int rank) {
    Peer& other = peer(rank);
    while (!other.sends.empty() && !other.awaits_accept && !other.sends_data) {
      Part& part = other.sends.front();
      const HostFrame frame = entry_.announce(part.call.what, is_small(part));
      other.number = frame.number;
      if (is_small(part)) {
        send_frame(rank, frame, part.memory.data(), part.bytes);
        other.sends.pop_front();
      } else {
        send_frame(rank, frame, nullptr, 0);
        other.awaits_accept = true;
      }
    }
  }

  void send_chunk(int rank) {
    Peer& other = peer(rank);
    Part& part = other.sends.front();
    if (part.memory.data() == nullptr) {
      part.memory = memory::pinned(kChunkDataOffset +
                                   std::min<std::size_t>(part.bytes, std::size_t{kChunkBytes}));
    }
    const std::size_t bytes = chunk_bytes(static_cast<std::int64_t>(part.bytes),
                                          static_cast<std::int64_t>(other.sent_bytes));
    copy(data_of(part) + kChunkDataOffset,
         static_cast<const std::byte*>(part.call.in) + other.sent_bytes, bytes);
    stream_.record().synchronize();
    write_chunk_frame(data_of(part), part.call.what);
    other.sent_bytes += bytes;
    other.queued.emplace_back();
    send(rank, chunk_range(data_of(part), bytes));
  }

  void receive_chunk(int rank, std::size_t bytes) {
    Peer& other = peer(rank);
    Part& part = other.receives.front();
    if (bytes != chunk_bytes(static_cast<std::int64_t>(part.bytes),
                             static_cast<std::int64_t>(other.received_bytes))) {
      throw Error("recv: a message is shorter than its call says");
    }
    copy(static_cast<std::byte*>(part.call.out) + other.received_bytes,
         data_of(part) + kChunkDataOffset, bytes);
    stream_.record().synchronize();
    other.received_bytes += bytes;
    if (other.received_bytes < part.bytes) return;
    other.receives.pop_front();
    other.receives_data = false;
    match_unexpected(rank);
  }

  void take_frame(int rank, std::size_t bytes) {
    Peer& other = peer(rank);
    const HostFrame frame = entry_.check_frame(rank, bytes);
    const bool answers = other.awaits_accept && frame.number == other.number;
    if (frame.kind == HostFrame::Kind::accept && answers) {
      entry_.settle(rank, frame.number);
      other.awaits_accept = false;
      other.sends_data = true;
      other.sent_bytes = 0;
      return send_chunk(rank);
    }
    if (frame.kind == HostFrame::Kind::reject && answers) {
      entry_.settle(rank, frame.number);
      record_rejection({rank_, other.sends.front().call.what, rank, frame.what});
      other.awaits_accept = false;
      other.sends.pop_front();
      return announce(rank);
    }
    if (!entry_.keep_frame(rank)) other.in_collective = true;
    match_unexpected(rank);
  }

  // Matches buffered messages of `rank` with receives, up to the first large one.
  void match_unexpected(int rank) {
    Peer& other = peer(rank);
    while (!other.receives.empty() && !other.receives_data) {
      const std::optional<HostEntry::UnexpectedMessage> message = entry_.take_unexpected(rank);
      if (!message) return;
      Part& part = other.receives.front();
      const Descriptor& mine = part.call.what;
      const Descriptor& sent = message->frame.what;
      const bool is_small = message->frame.has_body != 0;
      if (sent.count != mine.count || sent.dtype != mine.dtype ||
          (is_small && message->body.size() != part.bytes)) {
        record_rejection({rank, sent, rank_, mine});
        send_frame(rank,
                   {.what = mine, .kind = HostFrame::Kind::reject, .number = message->frame.number},
                   &sent, sizeof sent);
        other.receives.pop_front();
      } else if (is_small) {
        memory::Buffer memory = memory::pinned(part.bytes);
        if (part.bytes > 0) std::memcpy(memory.data(), message->body.data(), part.bytes);
        copy(part.call.out, memory.data(), part.bytes);
        kept_.push_back(std::move(memory));
        other.receives.pop_front();
      } else {
        part.memory = memory::pinned(kChunkDataOffset + buffer_bytes(other));
        other.receives_data = true;
        other.received_bytes = 0;
        send_frame(rank,
                   {.what = mine, .kind = HostFrame::Kind::accept, .number = message->frame.number},
                   nullptr, 0);
      }
    }
  }

  // Awaits the next message of `rank`, if one is expected.
  void listen(int rank) {
    Peer& other = peer(rank);
    if (other.is_listening || other.in_collective) return;
    if (other.receives.empty() && !other.awaits_accept) return;
    if (entry_.has_early_entry(rank)) {
      other.in_collective = true;
      return;
    }
    other.is_listening = true;
    await(rank, other.receives_data
                    ? chunk_range(data_of(other.receives.front()), buffer_bytes(other))
                    : entry_.buffer(rank));
  }

  void record_rejection(const Rejection& rejection) {
    if (!rejected_) rejected_ = rejection;
  }

  HostEntry& entry_;
  int rank_;
  const Stream& stream_;
  std::vector<Peer> peers_;
  std::vector<memory::Buffer> kept_;
  std::optional<Rejection> rejected_;
  bool is_over_ = false;  // nothing uses the messages' memory any more
};

}  // namespace

void HostTransport::exchange_messages(std::span<const ResolvedCall> messages,
                                      const Stream& stream) {
  MessageHandler handler(entry_, membership_.rank, membership_.size, stream);
  for (const ResolvedCall& call : messages) handler.add(call);
  handler.begin();
  entry_.links().drive(handler);
  handler.finish();
}

}  // namespace gantry
