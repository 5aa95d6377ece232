#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/host/links/addresses.hpp"
#include "collectives/host/links/handshake.hpp"
#include "collectives/host/links/links.hpp"
#include "core/authentication/tag_thread.hpp"

namespace gantry {

// A byte stream to one rank, framed into messages: each is its length, its bytes, and the tag of
// both. The bytes may be encrypted. A receive ends when the tag is checked. On a unix socket there
// are no tags.
class HostStream {
 public:
  enum class Outcome : std::uint8_t {
    moved,     // some bytes were sent or received
    blocked,   // no progress without waiting
    ended,     // the peer closed the connection, or it broke
    too_long,  // the next message does not fit into its buffer
    forged,    // the tag does not belong to the message
  };

  // Messages wait until the stream has its connection. `threads` compute the tags of long messages,
  // and live as long as the stream; nullptr: the caller of progress() does.
  void connect(Socket socket, std::optional<DataTags> tags, TagThreads* threads = nullptr) {
    socket_ = std::move(socket);
    tags_ = std::move(tags);
    if (tags_ && tags_->secrecy == Secrecy::open) threads_ = threads;
  }
  bool is_connected() const { return bool{socket_}; }

  // The arguments stay valid until the message is sent or received, or the stream is given up and
  // the threads of tags have ended their work. The message may be empty.
  void queue(const Outgoing& message) { outgoing_.push_back(message); }
  void await(Incoming& message) { awaited_.push_back(&message); }

  std::size_t outgoing() const { return outgoing_.size(); }
  std::size_t awaited() const { return awaited_.size(); }
  // True if bytes have arrived that no message awaits. False at the end of the connection.
  bool has_arrived() const noexcept;
  bool is_pending() const { return !outgoing_.empty() || !awaited_.empty(); }
  // Sends and receives without waiting for the peer or for the threads of tags.
  Outcome progress();
  // True if a message needs the threads of tags to move on, not its peer.
  bool waits_for_tag() const { return sends_wait_for_tag_ || receives_wait_for_tag_; }

  int descriptor() const { return socket_.get(); }
  // The events that poll() should wait for.
  short wanted() const;

 private:
  Outcome send_some();
  // As send_some(), for encrypted messages: chunk by chunk, as they are on the wire.
  Outcome send_sealed();
  void seal_next_chunk(const Outgoing& message);
  Outcome receive_some();
  // Reads into the buffer, which is empty or holds part of a length.
  Outcome refill();
  Outcome receive_body(Incoming& message);
  // Takes the tag, which must be in the buffer.
  Outcome end_message(Incoming& message);
  std::span<const std::byte> take(std::size_t bytes);
  void tag_ahead(const Outgoing& message);
  bool encrypts() const { return tags_ && tags_->secrecy == Secrecy::encrypted; }
  std::size_t tag_bytes() const { return tags_ ? sizeof(MessageTag) : 0; }

  Socket socket_;
  std::optional<DataTags> tags_;
  // Vectors: empty, they allocate nothing, and few messages wait.
  std::vector<Outgoing> outgoing_;
  std::size_t sent_ = 0;    // bytes of the first message, length and tag included
  std::size_t tagged_ = 0;  // bytes of it that its tag covers so far, length included
  bool has_tag_ = false;    // its tag covers all
  MessageTag tag_{};        // then
  TagThreads* threads_ = nullptr;
  // Results of TagThread::add() for the last bytes that each thread got.
  std::uint64_t outgoing_aside_ = 0;
  std::uint64_t incoming_aside_ = 0;
  bool sends_wait_for_tag_ = false;
  bool receives_wait_for_tag_ = false;
  // Of an encrypted message: the chunk of `sealed_bytes_` bytes that ends at byte `tagged_`, or
  // with the tag.
  std::vector<std::byte> sealed_;
  std::size_t sealed_bytes_ = 0;
  std::size_t sealed_sent_ = 0;
  std::vector<Incoming*> awaited_;
  std::size_t received_ = 0;  // bytes of the first message
  bool has_length_ = false;
  std::uint64_t length_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gantry
