// Streams between two ranks whose bytes a test sees and changes.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>

#include "collectives/host/links/handshake.hpp"
#include "collectives/host/links/stream.hpp"

namespace gantry::testing {

/// Two streams over one connection, whose bytes pass through the test.
class RelayedStreams {
 public:
  /// `aside`: a thread computes the tags of long messages.
  explicit RelayedStreams(Secrecy secrecy = Secrecy::open, bool aside = false) {
    std::array<int, 2> left{};
    std::array<int, 2> right{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, left.data()), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, right.data()), 0);
    const ConnectionKey key(random_key(), Hello{});
    const Key nonce = random_key();
    from.connect(Socket(left[0]), key.data_tags(LinkSide::dialler, nonce, secrecy),
                 aside ? &tag_threads_ : nullptr);
    to.connect(Socket(right[0]), key.data_tags(LinkSide::acceptor, nonce, secrecy),
               aside ? &tag_threads_ : nullptr);
    left_ = Socket(left[1]);
    right_ = Socket(right[1]);
  }
  // What `message` looks like on its way.
  std::string sent(std::string_view head, std::string_view body) {
    from.queue({1, std::as_bytes(std::span(head)), std::as_bytes(std::span(body))});
    std::string bytes;
    while (from.outgoing() > 0 || bytes.empty()) {
      if (from.waits_for_tag()) tag_threads_.drain();
      (void)from.progress();
      std::array<char, 65536> chunk;
      ssize_t got = 0;
      while ((got = recv(left_.get(), chunk.data(), chunk.size(), 0)) > 0) {
        bytes.append(chunk.data(), static_cast<std::size_t>(got));
      }
    }
    return bytes;
  }
  // What the receiver makes of `bytes`.
  HostStream::Outcome deliver(std::string_view bytes, Incoming& message) {
    to.await(message);
    HostStream::Outcome outcome = HostStream::Outcome::blocked;
    do {
      const ssize_t put = send(right_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
      if (to.waits_for_tag()) tag_threads_.drain();
      outcome = to.progress();
    } while (to.awaited() > 0 &&
             (!bytes.empty() || to.waits_for_tag() || outcome == HostStream::Outcome::moved));
    return outcome;
  }

 private:
  TagThreads tag_threads_{TagThread::Start::always};

 public:
  HostStream from;
  HostStream to;

 private:
  Socket left_;
  Socket right_;
};

}  // namespace gantry::testing
