// Detects faults and late calls from the words that devices write.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/call.hpp"
#include "collectives/control/segment.hpp"

namespace gantry {

using flight::Queue;
using flight::Reason;
using flight::State;

namespace {

// A rank that left has completed its own work. If another rank's call still runs this much later,
// it waits for a call that the rank never made.
constexpr std::int64_t kLeftBehindNs = 5'000'000'000;
// A dying process loses its connections first; the cause is known once it has ended.
constexpr std::int64_t kLostTimeoutNs = 500'000'000;
// From the end of a connection to the end of its process, which frees device memory before.
constexpr auto kDiagnosisTimeout = std::chrono::seconds(2);
// From a fault of this rank to the report of the other rank's kernel.
constexpr auto kReportTimeout = std::chrono::milliseconds(200);
// Operations that the other rank's loop may have begun since.
constexpr std::uint32_t kMostAhead = 1024;
// The most time that counts between two checks: a job that was stopped has not timed out.
constexpr std::int64_t kMaxScanNs = 1'000'000'000;

constexpr Queue kAllQueues[] = {Queue::collective, Queue::send, Queue::recv};

State state_of(const flight::Rank& rank) {
  return static_cast<State>(rank.state.load(std::memory_order_acquire));
}

bool same_call(const flight::Call& a, const flight::Call& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

std::uint64_t ControlSegment::running_call() const noexcept {
  std::uint64_t call = 0;
  for (int i = 0; i < size_; ++i) {
    const flight::Progress progress = view().words(i).progress(Queue::collective);
    if (progress.is_under_way()) call = std::max(call, progress.started);
  }
  return call;
}

void ControlSegment::detect_lost_rank() const noexcept {
  const int lost = bootstrap_.lost_rank();
  if (lost < 0 || state_of(view().rank(lost)) != State::running) return;
  const std::int64_t now = flight::monotonic_ns();
  std::int64_t since = 0;
  if (lost_since_ns_.compare_exchange_strong(since, now)) since = now;
  const auto& peer = peers_[static_cast<std::size_t>(lost)];
  const bool dead = peer && peer->has_ended();
  if (dead && state_of(view().rank(lost)) == State::running) return mark_failed(lost, Reason::died);
  if (now - since > kLostTimeoutNs) mark_failed(lost, Reason::lost);
}

bool ControlSegment::is_busy(int rank) const noexcept {
  return std::any_of(std::begin(kAllQueues), std::end(kAllQueues), [&](Queue queue) {
    return view().words(rank).progress(queue).is_under_way();
  });
}

bool ControlSegment::has_fault() const noexcept { return FaultWords(*device_words()).has_fault(); }

std::optional<ReportedFault> ControlSegment::fault() const noexcept {
  return FaultWords(*device_words()).peek();
}

std::optional<CallFault> ControlSegment::take_fault() {
  const std::optional<ReportedFault> seen = fault();
  if (!seen) return std::nullopt;
  const auto [word, call, peer] = *seen;
  for (const Queue queue : kAllQueues) {
    // Other threads of the kernel may be about to report the same fault.
    const flight::Progress progress = view().words(rank_).progress(queue);
    if (progress.is_under_way() && progress.started == call && !broken()) return std::nullopt;
  }
  if (!FaultWords(*device_words()).take(*seen)) return std::nullopt;  // another thread took it
  if (same_operation(taken_fault_.exchange(word), word)) return std::nullopt;
  try {
    require_intact();
    if (seen->fault() == OperationFault::overlap) {
      mark_overlap(call);
      require_intact();
    }
    if (const auto different = different_conditions(*seen)) {
      mark_failed(peer, Reason::mismatch, *different);
      require_intact();
    }
    if (seen->fault() == OperationFault::mismatch) raise_mismatch(call, peer);
    if (peer == rank_) {
      throw InvalidArgument("PeerView: a kernel used a rank or a channel that does not exist");
    }
    throw PeerLostError(fmt::format("collective{} was aborted", call_suffix(call)), peer);
  } catch (...) {
    return CallFault{call, std::current_exception()};
  }
}

void ControlSegment::raise_mismatch(std::uint64_t call, int peer) const {
  verify(call);
  if (const auto different = different_messages(call, peer)) {
    mark_failed(peer, Reason::mismatch, *different);
    require_intact();
  }
  const auto mine = view().find(rank_, Queue::collective, call);
  const auto other = view().find(peer, Queue::collective, call);
  // Calls that are equal differ on the devices where operations of one rank overlap: the report of
  // that rank breaks the group.
  if (mine && other && mine->call.count >= 0) await_diagnosis();
  if (mine && other) {
    // A graph ran the call after later calls overwrote its counts. The peer may only have forwarded
    // the fault of a third rank, so no rank is named.
    throw_mismatch(
        fmt::format("collective #{}: expected blocks of the sizes that the receiver expects, but "
                    "those of two ranks, which are no longer recorded, differ in {}",
                    call, view().text(*mine)),
        {}, {});
  }
  // A graph ran a call whose record was overwritten, or that its peer did not make.
  const std::uint64_t theirs = view().words(peer).progress(Queue::collective).started;
  const std::string calls[] = {call_suffix(call, Queue::collective, rank_),
                               call_suffix(theirs, Queue::collective, peer)};
  throw_mismatch(
      fmt::format("collective #{}: expected the same call on every rank, but rank {} called{} and "
                  "rank {} called{}",
                  call, rank_, calls[0], peer, calls[1]),
      {rank_, peer}, {calls[0], calls[1]});
}

void ControlSegment::verify(std::uint64_t call) const {
  std::optional<flight::Record> reference;
  int reference_rank = 0;
  for (int i = 0; i < size_; ++i) {
    const std::optional<flight::Record> other = view().find(i, Queue::collective, call);
    if (!other) continue;
    if (!reference) {
      reference = other;
      reference_rank = i;
    } else if (!same_call(reference->call, other->call)) {
      const std::string first = view().text(*reference);
      const std::string second = view().text(*other);
      throw_mismatch(different_calls_text(call, reference_rank, first, i, second),
                     {reference_rank, i}, {first, second});
    }
  }
  if (reference) verify_block_counts(reference->call);
}

bool ControlSegment::has_block_counts(std::uint64_t call) const {
  return view().block_counts(rank_, call).get(call, size_).has_value();
}

void ControlSegment::verify_block_counts(const flight::Call& call) const {
  if (call.count >= 0) return;
  const auto number = static_cast<std::uint64_t>(call.number);
  std::vector<std::vector<std::int64_t>> counts;
  for (int i = 0; i < size_; ++i) {
    counts.push_back(
        view().block_counts(i, number).get(number, size_).value_or(std::vector<std::int64_t>{}));
  }
  const auto difference = compare_blocks(counts);
  if (!difference) return;
  const std::string text = view().text(call);
  throw_mismatch(difference->text(call.number, text), {difference->from, difference->to},
                 {text, text});
}

std::optional<flight::Detail> ControlSegment::different_messages(std::uint64_t call,
                                                                 int peer) const {
  for (const auto& [mine, theirs] :
       {std::pair(Queue::send, Queue::recv), std::pair(Queue::recv, Queue::send)}) {
    const std::optional<flight::Record> record = view().find(rank_, mine, call);
    if (!record || record->call.root != peer) continue;
    // The call that the peer's device runs, else the last one that the peer recorded.
    const std::uint64_t current = view().words(peer).progress(theirs).started;
    std::optional<flight::Record> other = view().find(peer, theirs, current);
    if (!other || other->call.root != rank_) other = view().find_message(peer, theirs, rank_);
    flight::Detail detail{
        .ranks = {rank_, peer},
        .calls = {view().text(*record),
                  other ? view().text(*other) : std::string("a call that is no longer recorded")}};
    if (mine == Queue::recv) {
      std::swap(detail.ranks[0], detail.ranks[1]);
      std::swap(detail.calls[0], detail.calls[1]);
    }
    detail.text = different_messages_text(call, detail.ranks[0], detail.calls[0], detail.ranks[1],
                                          detail.calls[1]);
    return detail;
  }
  return std::nullopt;
}

// See Note [Operations in conditions]. The kernels of both ranks have the same epoch, which they
// report before the fault; the other rank's loop may have gone on.
std::optional<flight::Detail> ControlSegment::different_conditions(
    const ReportedFault& fault) const {
  if (fault.fault() != OperationFault::mismatch || flight::is_message(fault.call)) return {};
  {
    const std::lock_guard lock(conditions_mutex_);
    if (!condition_calls_.contains(fault.call)) return {};
  }
  const std::uint32_t epoch = fault.word >> 2;
  constexpr std::uint32_t kRunMask = (1U << (64 - flight::kRunShift)) - 1;
  const auto deadline = std::chrono::steady_clock::now() + kReportTimeout;
  std::string theirs = " another one";
  do {
    const flight::Progress progress = view().words(fault.peer).progress(Queue::collective);
    const std::uint32_t ahead = (progress.run - epoch) & kRunMask;
    if (progress.started != fault.call && ahead < kMostAhead) {
      theirs = call_suffix(progress.started, Queue::collective, fault.peer);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < deadline);
  const std::string mine = call_suffix(fault.call, Queue::collective, rank_);
  return flight::Detail{
      .text = with_name(fmt::format(
          "collective: expected the same call on every rank, but rank {} called{} and rank {} "
          "called{}; the flags of graph_if and graph_while must be equal on all ranks",
          rank_, mine, fault.peer, theirs)),
      .ranks = {rank_, fault.peer},
      .calls = {mine, theirs}};
}

// Overlapping operations break the group: peers may have matched data of one call to another call.
void ControlSegment::mark_overlap(std::uint64_t call) const {
  flight::Detail detail;
  detail.text = fmt::format(
      "collective{}: failed to run on rank {}: another operation of the communicator was running "
      "there; order replays of graphs, and calls beside them, by a stream or an event",
      call_suffix(call, Queue::collective, rank_), rank_);
  detail.ranks = {rank_};
  mark_failed(rank_, Reason::mismatch, detail);
}

// Only the receiver's kernel detects a mismatched message. It leaves the message in its slot, which
// blocks the messages after it. So the group breaks, and the sender gets the same error.
void ControlSegment::detect_fatal_faults() const {
  const std::optional<ReportedFault> seen = fault();
  if (seen && seen->fault() == OperationFault::overlap) return mark_overlap(seen->call);
  if (!seen || seen->fault() != OperationFault::mismatch) return;
  if (const auto different = different_conditions(*seen)) {
    return mark_failed(seen->peer, Reason::mismatch, *different);
  }
  if (!flight::is_message(seen->call)) return;
  if (const auto different = different_messages(seen->call, seen->peer)) {
    mark_failed(seen->peer, Reason::mismatch, *different);
  }
}

void ControlSegment::refresh_memory(std::int64_t now_ns) noexcept {
  constexpr std::int64_t kPeriodNs = 1'000'000'000;
  const std::lock_guard lock(memory_mutex_);
  if (!read_memory_ || (last_memory_ns_ != 0 && now_ns - last_memory_ns_ < kPeriodNs)) return;
  last_memory_ns_ = now_ns;
  try {
    const MemoryUse use = read_memory_();
    flight::Rank& mine = view().rank(rank_);
    mine.allocated_bytes.store(use.allocated, std::memory_order_relaxed);
    mine.reserved_bytes.store(use.reserved, std::memory_order_relaxed);
  } catch (const std::exception&) {
    read_memory_ = nullptr;
  }
}

bool ControlSegment::watch() noexcept {
  const std::int64_t now = flight::monotonic_ns();
  flight::Rank& mine = view().rank(rank_);
  mine.heartbeat_ns.store(now, std::memory_order_relaxed);
  const std::int64_t scan_ns = std::min(now - std::exchange(last_scan_ns_, now), kMaxScanNs);
  bool in_progress = false;
  try {
    refresh_memory(now);
    detect_lost_rank();
    if (!broken()) detect_fatal_faults();
    for (const Queue queue : kAllQueues) {
      const flight::Progress progress = view().words(rank_).progress(queue);
      const std::int64_t waited_ns =
          timers_[static_cast<std::size_t>(queue)].update(progress, scan_ns);
      if (!progress.is_under_way()) continue;
      in_progress = true;
      if (!broken()) detect_absent_ranks(queue, progress.started, waited_ns);
      if (!broken() && waited_ns >= abort_after_ns_) abort();
    }
    if (watch_own_kernels(scan_ns)) in_progress = true;
    if (broken()) wake_kernels();
  } catch (const std::exception&) {
    // Out of memory for a text; the next check retries.
  }
  return in_progress;
}

void ControlSegment::detect_absent_ranks(Queue queue, std::uint64_t call, std::int64_t waited_ns) {
  int peer = -1;
  if (queue != Queue::collective) {
    const auto record = view().find(rank_, queue, call);
    if (!record || record->call.root == rank_) return;
    peer = record->call.root;
  }
  std::vector<std::pair<std::uint64_t, int>> behind;
  std::vector<int> unreported;
  std::vector<int> inside;
  std::vector<int> others;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_ || (peer >= 0 && i != peer)) continue;
    const bool left = state_of(view().rank(i)) == State::finished;
    const flight::Progress progress = view().words(i).progress(Queue::collective);
    if (left && ((peer < 0 && progress.finished < call) || waited_ns > kLeftBehindNs)) {
      mark_failed(i, Reason::left);
      return;
    }
    if (peer < 0 && progress.started < call) {
      // A device that need not wait reports nothing: it is past the call or has not reached it.
      const std::uint64_t called = view().newest_number(i, Queue::collective);
      if (called < call) {
        behind.emplace_back(called, i);
      } else {
        unreported.push_back(i);
      }
    } else {
      const bool is_inside = peer < 0 && progress.started == call && progress.is_under_way();
      (is_inside ? inside : others).push_back(i);
    }
  }
  const std::chrono::nanoseconds waited(waited_ns);
  const std::chrono::milliseconds own = timeout_of(queue, call);
  if (waited < timeout_.or_of_call(own)) return;
  std::vector<int> missing;
  std::sort(behind.begin(), behind.end());
  for (const auto& [started, rank] : behind) missing.push_back(rank);
  // Call numbers do not identify a late peer of a message, nor of a replayed call.
  const bool has_entered = missing.empty() && unreported.empty() && !inside.empty();
  if (missing.empty()) missing = has_entered ? inside : unreported.empty() ? others : unreported;
  if (missing.empty()) return;
  // A rank that waits for others in a kernel of the program is not late itself.
  const auto waits = [&](int rank) { return waits_in_own_kernel(rank); };
  if (peer < 0 && !std::ranges::all_of(missing, waits)) {
    std::erase_if(missing, waits);
  } else if (const int late = peer < 0 ? late_behind(missing.front()) : -1; late >= 0) {
    missing = {late};
  }
  const char* how = queue == Queue::send   ? flight::kLateToReceive
                    : queue == Queue::recv ? flight::kLateToSend
                    : has_entered          ? flight::kLateToFinish
                                           : flight::kLateToCall;
  mark_failed(missing.front(), Reason::timed_out,
              {.text = timeout_text(missing, has_entered ? "finish" : "enter", call, own, queue),
               .ranks = missing,
               .calls = {call_suffix(call, queue, rank_).substr(1), how}});
}

std::chrono::milliseconds ControlSegment::timeout_of(Queue queue, std::uint64_t call) const {
  const std::optional<flight::Record> record = view().find(rank_, queue, call);
  return std::chrono::milliseconds(record ? record->timeout_ms : 0);
}

void ControlSegment::await_diagnosis(int rank) const {
  const auto deadline = std::chrono::steady_clock::now() + kDiagnosisTimeout;
  do {
    if (rank >= 0 && state_of(view().rank(rank)) == State::finished)
      mark_failed(rank, Reason::left);
    check_peers(fence_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < deadline);
}

void ControlSegment::diagnose_loss(int rank) const {
  require_intact();
  if (rank < 0 || rank == rank_) return;
  await_diagnosis(rank);
  mark_failed(rank, Reason::lost);
  require_intact();
}

void ControlSegment::diagnose_timeout(const Descriptor& what, const TimeoutError& error) const {
  const bool names_ranks = !error.ranks().empty();
  int late = names_ranks ? error.ranks().front() : is_message(what.kind) ? what.root : -1;
  std::uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < size_ && !names_ranks && !is_message(what.kind); ++i) {
    const std::uint64_t calls = view().newest_number(i, Queue::collective);
    if (i == rank_ || calls >= fewest) continue;
    fewest = calls;
    late = i;
  }
  const auto number = flight::plain_number(static_cast<std::uint64_t>(what.call));
  const char* how = what.kind == CollectiveKind::send   ? flight::kLateToReceive
                    : what.kind == CollectiveKind::recv ? flight::kLateToSend
                                                        : flight::kLateToCall;
  mark_failed(late, Reason::timed_out,
              {.text = error.what(),
               .ranks = names_ranks ? error.ranks() : std::vector<int>{late},
               .calls = {fmt::format("#{} {}", number, what.str()), how}});
  require_intact();
}

void ControlSegment::mark_late(int rank, const std::string& text, std::string call,
                               const char* how) const noexcept {
  mark_failed(rank, Reason::timed_out,
              {.text = text, .ranks = {rank}, .calls = {std::move(call), how}});
}

void ControlSegment::mark_dead(int rank) noexcept {
  flight::Rank& dead = view().rank(rank);
  std::int64_t unknown = 0;
  dead.died_ns.compare_exchange_strong(unknown, flight::monotonic_ns());
  if (state_of(dead) != State::finished) mark_failed(rank, Reason::died);
}

}  // namespace gantry
