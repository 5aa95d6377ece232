// Transfers between the ranks of an operation, counted without a run.
#pragma once

#include <cstdint>
#include <functional>

namespace gantry {

// Note [Counted traffic]
// Functions beside the algorithms count their transfers from the plans that the algorithms run by.
// gantry-bench --model predicts times from the counts, and tests compare them with runs.
// A transfer is data, with the flags or the frames that travel in the same stores or messages.
// Signals are words of 8 bytes that only order memory. They make steps, and are no transfers.
// A step is a round of messages, or of signals, that can only begin behind the step before it.
// Chunks that follow each other through staging take a step each.

// The way between two ranks: memory of peers, or messages between hosts.
enum class Way : std::uint8_t { peers, hosts };

// The bytes that one rank moves to another, or fetches from it, and the messages that hold them.
// Over peers a message is the part that one block moves at a time.
struct Transfer {
  int from = 0;
  int to = 0;
  std::int64_t bytes = 0;
  std::int64_t messages = 0;
  Way way = Way::peers;
};
using TransferVisitor = std::function<void(const Transfer&)>;

// The steps of an operation, by way.
struct Steps {
  std::int64_t peers = 0;
  std::int64_t hosts = 0;

  Steps& operator+=(const Steps& other) {
    peers += other.peers;
    hosts += other.hosts;
    return *this;
  }
  friend Steps operator*(std::int64_t times, const Steps& steps) {
    return {times * steps.peers, times * steps.hosts};
  }
  friend bool operator==(const Steps&, const Steps&) = default;
};

// Divides `count` by `by`, rounded up.
constexpr std::int64_t divided_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

}  // namespace gantry
