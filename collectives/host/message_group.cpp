// Sends and receives of one rank side by side, through the host.
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "collectives/host/piece.hpp"
#include "collectives/host/transport.hpp"

namespace gantry {

namespace {

// Note [Groups on the host]
// The protocol of each message is that of send() and receive(), so a group may meet either. What a
// rank waits for from several others comes in any order: the conversation goes on wherever it can.
// A message that its receiver does not expect is refused, and the others go on. A peer that is in a
// collective instead sends nothing more; once the others are done, this rank enters that
// collective with its own call, so that all ranks find the mismatch.
class MessageTalk final : public Conversation {
 public:
  MessageTalk(HostEntry& entry, int rank, int size, const Stream& stream)
      : entry_(entry), rank_(rank), stream_(stream), peers_(static_cast<std::size_t>(size)) {}

  void add(const CollectiveCall& call) {
    Peer& other = peer(call.what.root);
    const auto bytes = static_cast<std::size_t>(call.what.count) * element_size(call.what.dtype);
    if (call.what.kind == CollectiveKind::recv) {
      other.receives.push_back({call, bytes, {}});
    } else {
      other.sends.push_back({call, bytes, {}});
    }
  }

  // Fetches the small messages, which travel with their announcement, and begins.
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
      take_letters(rank);
      listen(rank);
    }
  }

  void sent(int rank) override {
    Peer& other = peer(rank);
    const bool is_piece = other.queued.front().empty();
    other.queued.pop_front();
    if (!is_piece) return;
    Part& part = other.sends.front();
    if (other.sent_bytes < part.bytes) return send_piece(rank);
    other.sends.pop_front();
    other.sends_data = false;
    announce(rank);
    listen(rank);
  }

  void received(int rank, std::size_t bytes) override {
    Peer& other = peer(rank);
    other.is_listening = false;
    if (other.receives_data) {
      const auto range = piece_range(data_of(other.receives.front()), room_bytes(other));
      if (bytes >= sizeof(HostFrame) && read_frame(range).kind == HostFrame::Kind::piece) {
        take_piece(rank, bytes - sizeof(HostFrame));
        return listen(rank);
      }
      std::memcpy(entry_.room(rank).data(), range.data(),
                  std::min(bytes, entry_.room(rank).size()));
    }
    take_frame(rank, bytes);
    listen(rank);
  }

  // Throws what kept a message from its end.
  void finish() {
    // Memory that copies read or write is not given back before.
    stream_.record().synchronize();
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      if (!peer(rank).is_elsewhere) continue;
      std::vector<int> withdrawn;
      for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
        if (peer(other).is_offered) withdrawn.push_back(other);
      }
      const Peer& gone = peer(rank);
      const auto& parts = gone.sends.empty() ? gone.receives : gone.sends;
      entry_.enter_otherwise(parts.front().call.what, rank, withdrawn);
    }
    if (!refused_) return;
    const auto& [sender, sent, receiver, received] = *refused_;
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
    std::uint64_t number = 0;  // of the message that was announced last
    bool is_offered = false;   // the first send waits to be allowed
    bool sends_data = false;
    bool receives_data = false;
    bool is_listening = false;
    bool is_elsewhere = false;  // in a collective
    std::size_t sent_bytes = 0;
    std::size_t received_bytes = 0;
    // What is on its way: frames, or nothing for a piece.
    std::deque<std::vector<std::byte>> queued;
  };
  struct Refusal {
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
  // Data that the room of a piece holds: other frames may come there, too.
  std::size_t room_bytes(const Peer& other) const {
    return std::max(entry_.body_limit(),
                    std::min<std::size_t>(other.receives.front().bytes, std::size_t{kPieceBytes}));
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) driver().copy(to, from, bytes, stream_.native());
  }

  void send_frame(int rank, const HostFrame& frame, const void* body, std::size_t bytes) {
    std::vector<std::byte>& packet = peer(rank).queued.emplace_back(sizeof frame + bytes);
    std::memcpy(packet.data(), &frame, sizeof frame);
    if (bytes > 0) std::memcpy(packet.data() + sizeof frame, body, bytes);
    send(rank, packet);
  }

  // Announces the next sends to `rank`, up to one that has to wait.
  void announce(int rank) {
    Peer& other = peer(rank);
    while (!other.sends.empty() && !other.is_offered && !other.sends_data) {
      Part& part = other.sends.front();
      const HostFrame frame = entry_.announce(part.call.what, is_small(part));
      other.number = frame.number;
      if (is_small(part)) {
        send_frame(rank, frame, part.memory.data(), part.bytes);
        other.sends.pop_front();
      } else {
        send_frame(rank, frame, nullptr, 0);
        other.is_offered = true;
      }
    }
  }

  void send_piece(int rank) {
    Peer& other = peer(rank);
    Part& part = other.sends.front();
    if (part.memory.data() == nullptr) {
      part.memory = memory::pinned(kPieceDataAt +
                                   std::min<std::size_t>(part.bytes, std::size_t{kPieceBytes}));
    }
    const std::size_t bytes = piece_bytes(static_cast<std::int64_t>(part.bytes),
                                          static_cast<std::int64_t>(other.sent_bytes));
    copy(data_of(part) + kPieceDataAt,
         static_cast<const std::byte*>(part.call.in) + other.sent_bytes, bytes);
    stream_.record().synchronize();
    write_piece_frame(data_of(part), part.call.what);
    other.sent_bytes += bytes;
    other.queued.emplace_back();
    send(rank, piece_range(data_of(part), bytes));
  }

  void take_piece(int rank, std::size_t bytes) {
    Peer& other = peer(rank);
    Part& part = other.receives.front();
    if (bytes != piece_bytes(static_cast<std::int64_t>(part.bytes),
                             static_cast<std::int64_t>(other.received_bytes))) {
      throw Error("recv: a message is shorter than its call says");
    }
    copy(static_cast<std::byte*>(part.call.out) + other.received_bytes,
         data_of(part) + kPieceDataAt, bytes);
    stream_.record().synchronize();
    other.received_bytes += bytes;
    if (other.received_bytes < part.bytes) return;
    other.receives.pop_front();
    other.receives_data = false;
    take_letters(rank);
  }

  void take_frame(int rank, std::size_t bytes) {
    Peer& other = peer(rank);
    const HostFrame frame = entry_.note_frame(rank, bytes);
    const bool answers = other.is_offered && frame.number == other.number;
    if (frame.kind == HostFrame::Kind::accept && answers) {
      other.is_offered = false;
      other.sends_data = true;
      other.sent_bytes = 0;
      return send_piece(rank);
    }
    if (frame.kind == HostFrame::Kind::refuse && answers) {
      note_refusal({rank_, other.sends.front().call.what, rank, frame.what});
      other.is_offered = false;
      other.sends.pop_front();
      return announce(rank);
    }
    if (!entry_.keep_frame(rank)) other.is_elsewhere = true;
    take_letters(rank);
  }

  // Answers messages of `rank` that have come, up to one whose data follow.
  void take_letters(int rank) {
    Peer& other = peer(rank);
    while (!other.receives.empty() && !other.receives_data) {
      const std::optional<HostEntry::Letter> letter = entry_.next_letter(rank);
      if (!letter) return;
      Part& part = other.receives.front();
      const Descriptor& mine = part.call.what;
      const Descriptor& sent = letter->frame.what;
      const bool is_small = letter->frame.has_body != 0;
      if (sent.count != mine.count || sent.dtype != mine.dtype ||
          (is_small && letter->body.size() != part.bytes)) {
        note_refusal({rank, sent, rank_, mine});
        send_frame(rank,
                   {.what = mine, .kind = HostFrame::Kind::refuse, .number = letter->frame.number},
                   &sent, sizeof sent);
        other.receives.pop_front();
      } else if (is_small) {
        memory::Buffer memory = memory::pinned(part.bytes);
        if (part.bytes > 0) std::memcpy(memory.data(), letter->body.data(), part.bytes);
        copy(part.call.out, memory.data(), part.bytes);
        kept_.push_back(std::move(memory));
        other.receives.pop_front();
      } else {
        part.memory = memory::pinned(kPieceDataAt + room_bytes(other));
        other.receives_data = true;
        other.received_bytes = 0;
        send_frame(rank,
                   {.what = mine, .kind = HostFrame::Kind::accept, .number = letter->frame.number},
                   nullptr, 0);
      }
    }
  }

  // Awaits the next message of `rank`, if one has to come.
  void listen(int rank) {
    Peer& other = peer(rank);
    if (other.is_listening || other.is_elsewhere) return;
    if (other.receives.empty() && !other.is_offered) return;
    other.is_listening = true;
    await(rank, other.receives_data
                    ? piece_range(data_of(other.receives.front()), room_bytes(other))
                    : entry_.room(rank));
  }

  void note_refusal(const Refusal& refusal) {
    if (!refused_) refused_ = refusal;
  }

  HostEntry& entry_;
  int rank_;
  const Stream& stream_;
  std::vector<Peer> peers_;
  std::vector<memory::Buffer> kept_;
  std::optional<Refusal> refused_;
};

}  // namespace

void HostTransport::exchange_messages(std::span<const CollectiveCall> messages,
                                      const Stream& stream) {
  MessageTalk talk(entry_, membership_.rank, membership_.size, stream);
  for (const CollectiveCall& call : messages) talk.add(call);
  talk.begin();
  entry_.links().converse(talk);
  talk.finish();
}

}  // namespace gantry
