// A process that speaks the store's protocol over TCP without being a rank.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/socket.hpp"
#include "job/store/handshake.hpp"
#include "job/store/messages.hpp"

namespace gantry::testing {

class StorePeer {
 public:
  explicit StorePeer(const std::string& address) {
    const SocketAddress place = parse_socket_address(address);
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!fd_ && std::chrono::steady_clock::now() < deadline) {
      if (auto made = connect_to(place, deadline)) fd_ = std::move(*made);
    }
  }

  void send(std::string_view bytes) { ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  /// The first message of a client, with this nonce.
  static std::string hello(const Key& nonce) {
    return store::Writer(store::Message::hello, 1)
        .u32(store::kMagic)
        .text(gantry::text_of(nonce))
        .finish();
  }
  static std::string prove(std::int64_t rank, const Key& proof) {
    return store::Writer(store::Message::prove, 2).i64(rank).text(gantry::text_of(proof)).finish();
  }

  /// The body of the server's next message; none if it hangs up or is silent.
  std::optional<std::string> receive() {
    char chunk[4096];
    for (;;) {
      if (const auto body = splitter_.next(store::kMaxMessageBytes)) return std::string(*body);
      const auto deadline = std::chrono::steady_clock::now() + kLong;
      if (!await_ready(fd_.get(), POLLIN, deadline)) return std::nullopt;
      const ssize_t got = recv(fd_.get(), chunk, sizeof chunk, 0);
      if (got <= 0) return std::nullopt;
      splitter_.append({chunk, static_cast<std::size_t>(got)});
    }
  }

  /// Sends a hello. Returns the nonces if the server answers with a challenge, and its proof.
  std::optional<std::pair<store::Nonces, std::string>> greet(Key nonce = random_key()) {
    send(hello(nonce));
    const std::optional<std::string> body = receive();
    if (!body) return std::nullopt;
    store::Reader challenge(*body);
    const std::string_view theirs = challenge.text();
    const std::string proof(challenge.text());
    store::Nonces nonces{nonce, {}};
    if (challenge.kind() != store::Message::challenge || !challenge.finished() ||
        theirs.size() != nonces.server.size()) {
      return std::nullopt;
    }
    std::copy(theirs.begin(), theirs.end(), nonces.server.begin());
    return std::pair(nonces, proof);
  }
  /// Greets and proves to know `token`, whatever the server's proof is.
  void introduce(std::int64_t rank, std::string_view token) {
    const auto greeted = greet();
    if (greeted) send(prove(rank, store::client_proof(token, greeted->first, rank)));
  }

  /// Everything that the server sends until it hangs up.
  std::string read_to_end() {
    std::string all;
    while (const auto body = receive()) all += *body;
    return is_closed() ? all : all + " (the server keeps the connection)";
  }
  [[nodiscard]] int descriptor() const { return fd_.get(); }

 private:
  static constexpr std::chrono::seconds kLong{20};

  bool is_closed() const {
    char byte = 0;
    return recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0 && errno != EAGAIN;
  }

  UniqueFd fd_;
  store::Splitter splitter_;
};

// Forwards what a client and the server say, and lets `change` do what it likes with the bytes of
// the server or of the client.
class StoreRelay {
 public:
  using Change = std::function<std::string(std::string bytes, int turn)>;

  StoreRelay(std::string server, Change of_client, Change of_server)
      : server_(std::move(server)),
        of_client_(std::move(of_client)),
        of_server_(std::move(of_server)),
        listener_(listen_at(place_)),
        thread_([this] { serve(); }) {}
  ~StoreRelay() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::string address() const { return place_.str(); }

 private:
  static constexpr std::chrono::seconds kLong{20};

  void serve() const {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    if (!await_ready(listener_.get(), POLLIN, deadline)) return;
    const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto server = connect_to(parse_socket_address(server_), deadline);
    if (!client || !server) return;
    std::array<pollfd, 2> ends{{{client.get(), POLLIN, 0}, {server->get(), POLLIN, 0}}};
    std::array<int, 2> turns{};
    for (;;) {
      if (poll(ends.data(), ends.size(), 20'000) <= 0) return;
      for (std::size_t from = 0; from < ends.size(); ++from) {
        if (ends[from].revents == 0) continue;
        char chunk[65536];
        const ssize_t got = recv(ends[from].fd, chunk, sizeof chunk, 0);
        if (got <= 0) return;
        std::string bytes(chunk, static_cast<std::size_t>(got));
        bytes = (from == 0 ? of_client_ : of_server_)(std::move(bytes), turns[from]++);
        (void)::send(ends[1 - from].fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
    }
  }

  SocketAddress place_ = parse_socket_address("tcp:127.0.0.1:0");
  const std::string server_;
  const Change of_client_;
  const Change of_server_;
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace gantry::testing
