// Words of PeerView on simulated devices.
#include <gantry/collectives/channel.hpp>

#include <fmt/format.h>

#include <atomic>

#include <gantry/core/error.hpp>

#include "collectives/sim/schedule.hpp"
#include "kernels/sim/sim_block.hpp"

namespace gantry::detail {

namespace schedule = protocol::schedule;

std::uint64_t load_signal(const std::uint64_t* word) {
  schedule::point();
  return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}

void store_signal(std::uint64_t* word, std::uint64_t value) {
  schedule::point();
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

std::uint64_t count_signal(std::uint64_t* counter) {
  schedule::point();
  return std::atomic_ref(*counter).fetch_add(1, std::memory_order_relaxed);
}

// Each half has its own flag, so the two may be of different times.
void load_packet(const std::uint64_t* packet, std::uint64_t (&halves)[2]) {
  schedule::point();
  auto* words = const_cast<std::uint64_t*>(packet);
  for (int i = 0; i < 2; ++i) {
    halves[i] = std::atomic_ref(words[i]).load(std::memory_order_acquire);
  }
}

void store_packet(std::uint64_t* packet, const std::uint64_t (&halves)[2]) {
  schedule::point();
  for (int i = 0; i < 2; ++i) {
    std::atomic_ref(packet[i]).store(halves[i], std::memory_order_release);
  }
}

std::uint32_t load_host_word(const std::uint32_t* word) {
  return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}

bool claim_fault(std::uint32_t* word) {
  std::uint32_t none = 0;
  return std::atomic_ref(*word).compare_exchange_strong(none, kClaimedFault,
                                                        std::memory_order_acquire);
}

void pause_wait(std::uint32_t polls) {
  SimBlock::yield();
  schedule::pause(polls);
}

void check_signal(int rank, int size, int channel) {
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(
        fmt::format("PeerView: expected a rank from 0 to {}, but got {}", size - 1, rank));
  }
  if (channel < 0 || channel >= PeerView::kChannels) {
    throw InvalidArgument(fmt::format("PeerView: expected a channel from 0 to {}, but got {}",
                                      PeerView::kChannels - 1, channel));
  }
}

}  // namespace gantry::detail
