// Conversations that no program of gantry would have with a listening socket.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/socket.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry::testing {

using Random = std::mt19937;

/// How many conversations a campaign has: GANTRY_TEST_ROUNDS, or few.
inline int campaign_rounds(int few) {
  const char* wanted = std::getenv("GANTRY_TEST_ROUNDS");
  return wanted == nullptr ? few : std::max(1, std::atoi(wanted));
}
inline unsigned campaign_seed() {
  const char* wanted = std::getenv("GANTRY_TEST_SEED");
  return wanted == nullptr ? 1 : static_cast<unsigned>(std::atoi(wanted));
}

/// Memory of this process, in MiB.
inline double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  long whole = 0;
  long resident = 0;
  statm >> whole >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

inline std::string random_bytes(Random& random, std::size_t most) {
  std::string bytes(random() % (most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// A connection that a stranger has; it sends and reads without waiting.
class HostilePeer {
 public:
  explicit HostilePeer(const SocketAddress& address) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!fd_ && std::chrono::steady_clock::now() < deadline) {
      if (auto made = connect_to(address, deadline)) fd_ = std::move(*made);
    }
  }
  void send(std::string_view bytes) {
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// What has come within some milliseconds.
  std::string read(int milliseconds) {
    pollfd entry{fd_.get(), POLLIN, 0};
    std::string all;
    std::array<char, 4096> chunk;
    while (poll(&entry, 1, milliseconds) > 0) {
      const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got <= 0) break;
      all.append(chunk.data(), static_cast<std::size_t>(got));
      milliseconds = 0;
    }
    return all;
  }
  void end(Random& random) {
    switch (random() % 4) {
      case 0: {  // a reset
        const linger at_once{1, 0};
        setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        break;
      }
      case 1:
        shutdown(fd_.get(), SHUT_WR);
        break;
      case 2:
        shutdown(fd_.get(), SHUT_RD);
        break;
      default:
        break;
    }
  }
  [[nodiscard]] int descriptor() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

/// A listening socket, and how to see that what it serves goes on.
struct HostileTarget {
  SocketAddress address;
  /// Expects that the job of this socket works.
  std::function<void()> expect_undisturbed;
  /// Some messages of the protocol, with fields of any value. `said` is what the other side has
  /// answered so far.
  std::function<std::string(Random& random, std::string_view said)> sentence;
  /// The connections without a proof that it keeps.
  int most_guests = 0;
};

/// Changes, repeats, drops or cuts some of `bytes`.
inline std::string mutated(Random& random, std::string bytes) {
  for (unsigned changes = random() % 3; changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = random() % bytes.size();
    const std::size_t count = 1 + random() % std::min<std::size_t>(bytes.size() - at, 16);
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 1:
        bytes.erase(at, count);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, count));
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        for (std::size_t i = at; i < at + count; ++i) bytes[i] = static_cast<char>(0xff);
        break;
    }
  }
  return bytes;
}

/// Has `rounds` conversations of random bytes and a tenth as many of sentences, then floods.
inline void run_hostile_campaign(const HostileTarget& target, int rounds) {
  Random random(campaign_seed());
  constexpr int kBetweenLooks = 100;
  target.expect_undisturbed();
  const int files = count_descriptors();
  for (int round = 0; round < rounds; ++round) {
    HostilePeer peer(target.address);
    for (unsigned parts = random() % 4; parts > 0; --parts) peer.send(random_bytes(random, 600));
    if (random() % 64 == 0) (void)peer.read(1);
    peer.end(random);
    if (round % kBetweenLooks == 0) target.expect_undisturbed();
  }
  const double before = resident_mib();
  std::string recorded;
  for (int round = 0; round < rounds / 10; ++round) {
    HostilePeer peer(target.address);
    std::string said;
    for (unsigned sentences = 1 + random() % 3; sentences > 0; --sentences) {
      std::string sentence = target.sentence(random, said);
      if (random() % 8 == 0) sentence = recorded;  // of another connection
      if (random() % 4 == 0) recorded = sentence;
      if (random() % 2 == 0) sentence = mutated(random, std::move(sentence));
      if (random() % 4 == 0) {  // slowly
        for (const char& byte : sentence.substr(0, 64)) peer.send({&byte, 1});
        sentence.erase(0, std::min<std::size_t>(64, sentence.size()));
      }
      peer.send(sentence);
      said += peer.read(2);
    }
    peer.end(random);
    if (round % kBetweenLooks == 0) target.expect_undisturbed();
  }
  {
    // Half of them say the begin of something.
    std::vector<HostilePeer> flood;
    for (int i = 0; i < 10 * target.most_guests; ++i) {
      flood.emplace_back(target.address);
      if (i % 2 == 0) flood.back().send(target.sentence(random, {}).substr(0, 20));
      if (i % target.most_guests == 0) target.expect_undisturbed();
      // Both ends are here; some more are being made or dropped.
      ASSERT_LE(count_descriptors() - files,
                static_cast<int>(flood.size()) + target.most_guests + 16);
    }
    target.expect_undisturbed();
  }
  target.expect_undisturbed();
  constexpr double kFlat = 24;  // MiB; what allocators keep
  // Sanitizers keep what is freed.
  if (!kIsSanitized) {
    EXPECT_LE(resident_mib() - before, kFlat);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count_descriptors() > files + 2 && std::chrono::steady_clock::now() < deadline) {
    target.expect_undisturbed();
  }
  EXPECT_LE(count_descriptors(), files + 2);
}

}  // namespace gantry::testing
