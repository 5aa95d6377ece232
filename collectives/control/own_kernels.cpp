// Detects ranks that kernels of the program wait for too long; see Note [Waits of own kernels].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/channel.hpp>

#include "collectives/control/segment.hpp"

namespace gantry {

using flight::Queue;
using flight::Reason;

namespace {

// As for operations: a rank that left sends no signal.
constexpr std::int64_t kLeftBehindNs = 5'000'000'000;

std::uint32_t awaited(const DeviceWords& words, int peer) {
  return __atomic_load_n(&words.awaited[peer], __ATOMIC_ACQUIRE);
}

}  // namespace

bool ControlSegment::watch_own_kernels(std::int64_t scan_ns) {
  bool waits = false;
  for (int peer = 0; peer < size_; ++peer) {
    AwaitedPeer& wait = awaited_[static_cast<std::size_t>(peer)];
    const std::uint32_t note = awaited(*device_words(), peer);
    wait.waited_ns = note != 0 && note == wait.note ? wait.waited_ns + scan_ns : 0;
    wait.note = note;
    if (note == 0) continue;
    waits = true;
    if (broken()) continue;
    const auto state = view().rank(peer).state.load(std::memory_order_acquire);
    if (state == static_cast<std::uint32_t>(flight::State::finished) &&
        wait.waited_ns > kLeftBehindNs) {
      mark_failed(peer, Reason::left);
    } else if (std::chrono::nanoseconds(wait.waited_ns) >= timeout_.of_group()) {
      mark_late_to_signal(peer, static_cast<int>(note >> detail::kAwaitedNumberBits));
    } else if (wait.waited_ns >= abort_after_ns_) {
      abort();
    }
  }
  return waits;
}

bool ControlSegment::waits_in_own_kernel(int rank) const {
  const DeviceWords& theirs = *words(rank);
  return std::ranges::any_of(
      std::span(theirs.awaited).first(static_cast<std::size_t>(size_)),
      [](const std::uint32_t& note) { return __atomic_load_n(&note, __ATOMIC_ACQUIRE) != 0; });
}

std::vector<int> ControlSegment::awaited_by(int rank) const {
  std::vector<int> others;
  for (int other = 0; other < size_; ++other) {
    if (awaited(*words(rank), other) != 0) others.push_back(other);
  }
  for (const Queue queue : {Queue::collective, Queue::send, Queue::recv}) {
    const flight::Progress progress = view().words(rank).progress(queue);
    if (!progress.is_under_way()) continue;
    if (queue != Queue::collective) {
      const auto record = view().find(rank, queue, progress.started);
      if (record && record->call.root >= 0) others.push_back(record->call.root);
      continue;
    }
    for (int other = 0; other < size_; ++other) {
      if (view().words(other).progress(queue).started < progress.started) others.push_back(other);
    }
  }
  return others;
}

int ControlSegment::late_behind(int peer) const {
  std::vector<bool> seen(static_cast<std::size_t>(size_), false);
  seen[static_cast<std::size_t>(rank_)] = true;
  seen[static_cast<std::size_t>(peer)] = true;
  for (std::deque<int> next{peer}; !next.empty(); next.pop_front()) {
    const std::vector<int> others = awaited_by(next.front());
    if (others.empty()) return next.front();
    for (const int other : others) {
      if (seen[static_cast<std::size_t>(other)]) continue;
      seen[static_cast<std::size_t>(other)] = true;
      next.push_back(other);
    }
  }
  return -1;
}

void ControlSegment::mark_late_to_signal(int peer, int channel) {
  const int late = late_behind(peer);
  const std::string missing = channel == PeerView::kChannels
                                  ? std::string("put the packets")
                                  : fmt::format("signal on channel {}", channel);
  std::string text =
      fmt::format("PeerView: rank {} waited {} in a kernel, but rank {} did not {} ({})", rank_,
                  duration_text(timeout_.of_group()), peer, missing, timeout_.source());
  if (late < 0) {
    text += "; the ranks wait for each other";
  } else if (late != peer) {
    text += fmt::format("; it waits for other ranks, and at last for rank {}", late);
  }
  mark_failed(late < 0 ? peer : late, Reason::timed_out,
              {.text = with_name(std::move(text)),
               .ranks = {late < 0 ? peer : late},
               .calls = {"a kernel of the program", flight::kLateToSend}});
}

}  // namespace gantry
