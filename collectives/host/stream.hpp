#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/host/links.hpp"
#include "collectives/host/sockets.hpp"

namespace gantry {

// Cuts a byte stream to one rank into messages; a message travels behind its length.
class HostStream {
 public:
  enum class Outcome : std::uint8_t {
    moved,     // some bytes went out or came in
    stands,    // nothing can move now
    ended,     // the other side closed, or the connection broke
    too_long,  // the next message does not fit into its room
  };

  explicit HostStream(Socket socket) : socket_(std::move(socket)) {}

  // Both stay valid until they are done. A message without bytes is one, too.
  void queue(const Outgoing& message) { outgoing_.push_back(message); }
  void await(Incoming& room) { awaited_.push_back(&room); }

  std::size_t outgoing() const { return outgoing_.size(); }
  std::size_t awaited() const { return awaited_.size(); }
  bool is_pending() const { return !outgoing_.empty() || !awaited_.empty(); }
  // Moves what can be moved without waiting.
  Outcome progress();

  int descriptor() const { return socket_.get(); }
  // What poll() should wait for.
  short wanted() const;

 private:
  Outcome send_some();
  Outcome receive_some();
  // Reads into the buffer, which is empty or holds part of a length.
  Outcome refill();

  Socket socket_;
  std::deque<Outgoing> outgoing_;
  std::size_t sent_ = 0;  // of the first one, length included
  std::deque<Incoming*> awaited_;
  std::size_t received_ = 0;  // of the first one's bytes
  bool has_length_ = false;
  std::uint64_t length_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gantry
