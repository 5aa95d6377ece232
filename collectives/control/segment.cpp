#include "collectives/control/segment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/control/locked_words.hpp"
#include "collectives/transport.hpp"
#include "core/assert.hpp"
#include "core/text/escaped_text.hpp"
#include "memory/driver_memory.hpp"

namespace gantry {

using flight::Diagnosis;
using flight::job_ranks;
using flight::Reason;
using flight::State;

static_assert(sizeof(DeviceWords) == sizeof(flight::Words) &&
              offsetof(DeviceWords, abort) == offsetof(flight::Words, abort) &&
              offsetof(DeviceWords, started) == offsetof(flight::Words, started) &&
              offsetof(DeviceWords, finished) == offsetof(flight::Words, finished) &&
              offsetof(DeviceWords, message_started) == offsetof(flight::Words, message_started) &&
              offsetof(DeviceWords, message_finished) ==
                  offsetof(flight::Words, message_finished) &&
              offsetof(DeviceWords, fault_call) == offsetof(flight::Words, fault_call) &&
              offsetof(DeviceWords, fault_peer) == offsetof(flight::Words, fault_peer) &&
              offsetof(DeviceWords, fault) == offsetof(flight::Words, fault) &&
              offsetof(DeviceWords, awaited) == offsetof(flight::Words, awaited));
static_assert(run_word(0, 1) == std::uint64_t{1} << flight::kRunShift);

namespace {

State state_of(const flight::Rank& rank) {
  return static_cast<State>(rank.state.load(std::memory_order_acquire));
}

// Page-locks a rank's words. Throws: Error.
void lock_words(const flight::View& view, int rank) {
  if (!memory::register_host_with_driver(&view.words(rank), view.header().page_bytes)) {
    throw Error("the system lets no more memory be page-locked");
  }
}

bool has_closed(const flight::Rank& rank) {
  return rank.closed.load(std::memory_order_acquire) != 0;
}

// Bytes of a rank's blocks of unequal sizes: those that it sends or, if they are more, receives.
std::int64_t block_bytes(const CollectiveCall& call) {
  const auto sum = [](std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  return std::max(sum(call.send_counts), sum(call.recv_counts)) *
         static_cast<std::int64_t>(element_size(call.what.dtype));
}

}  // namespace

ControlSegment::ControlSegment(Bootstrap& bootstrap, int rank, int size, GroupTimeout timeout,
                               std::string_view group)
    : bootstrap_(bootstrap),
      rank_(rank),
      size_(size),
      timeout_(std::move(timeout)),
      file_(std::make_shared<ControlFile>(
          bootstrap, rank, size, timeout_.of_group(), group,
          ControlFile::Use{
              .begin = [rank](const flight::View& view) { lock_words(view, rank); },
              .end = [rank](const flight::View& view) { LockedWords::unlock(view, rank); }})) {
  try {
    const ProcessStamp self = this_process();
    for (const ProcessStamp& process : file_->processes()) {
      peers_.push_back(process == self ? nullptr : share_watch(process));
    }
    GANTRY_ASSERT(peers_.size() == static_cast<std::size_t>(size_) &&
                      peers_[static_cast<std::size_t>(rank_)] == nullptr,
                  "a rank is its own peer, or a peer is missing");
    Watchdog::add(*this);
  } catch (...) {
    Watchdog::remove(*this);
    LockedWords::instance().release(file_, rank_);
    throw;
  }
  if (shares_process()) LockedWords::instance().join();
}

ControlSegment::~ControlSegment() {
  if (!is_owner()) return;
  finish(std::chrono::milliseconds(0));
  if (shares_process()) LockedWords::instance().leave();
  LockedWords::instance().release(file_, rank_);
}

bool ControlSegment::shares_process() const noexcept {
  return std::count(peers_.begin(), peers_.end(), nullptr) > 1;
}

bool ControlSegment::is_owner() const noexcept { return view().rank(rank_).pid == getpid(); }

void ControlSegment::name_in_errors() { name_ = escaped_field(view().header().group); }

std::string ControlSegment::with_name(std::string text) const {
  constexpr std::string_view kSubject = "collective";
  if (!name_.empty() && text.starts_with(kSubject)) {
    text.insert(kSubject.size(), fmt::format(" of group '{}'", name_));
  }
  return text;
}

void ControlSegment::describe_device(std::string_view text, std::string_view uuid) {
  flight::Rank& mine = view().rank(rank_);
  std::memcpy(mine.device, text.data(), std::min(text.size(), sizeof mine.device - 1));
  std::memcpy(mine.uuid, uuid.data(), std::min(uuid.size(), sizeof mine.uuid));
}

void ControlSegment::publish_memory(std::function<MemoryUse()> read) {
  const std::lock_guard lock(memory_mutex_);
  read_memory_ = std::move(read);
  last_memory_ns_ = 0;
}

void ControlSegment::record(const CollectiveCall& call, Algorithm algorithm, std::int64_t bytes,
                            std::uint64_t stream, bool is_grouped) noexcept {
  withdraw_note(FailureKind::mismatch);  // the program has survived it
  flight::Rank& mine = view().rank(rank_);
  const std::uint64_t position = mine.recorded.load(std::memory_order_relaxed) + 1;
  GANTRY_ASSERT(call.send_counts.size() == call.recv_counts.size(),
                "a call sends and receives other numbers of blocks");
  flight::Record record{.call = to_call(call.what),
                        .bytes = call.is_uneven() ? block_bytes(call) : bytes,
                        .stream = stream,
                        .enqueued_ns = flight::monotonic_ns(),
                        .algorithm = static_cast<std::uint8_t>(algorithm),
                        .is_grouped = is_grouped ? std::uint8_t{1} : std::uint8_t{0},
                        .reserved = {},
                        .timeout_ms = static_cast<std::uint32_t>(call.timeout.count()),
                        .tag = {}};
  std::memcpy(record.tag, call.tag.data(), std::min(call.tag.size(), sizeof record.tag));
  if ((call.in_condition && !is_message(call.what.kind)) || call.what.ends_condition != 0) {
    const std::lock_guard lock(conditions_mutex_);
    condition_calls_.insert(static_cast<std::uint64_t>(call.what.call));
  }
  // Before the record, through which other ranks find them.
  if (call.is_uneven()) {
    const auto number = static_cast<std::uint64_t>(call.what.call);
    view().block_counts(rank_, number).put(number, call.send_counts, call.recv_counts);
  }
  view().ring(rank_)[position % flight::kRing].put(position, record);
  mine.recorded.store(position, std::memory_order_release);
}

DeviceWords* ControlSegment::words(int rank) const {
  return reinterpret_cast<DeviceWords*>(&view().words(rank));
}

bool ControlSegment::broken() const noexcept {
  return view().header().diagnosis.load(std::memory_order_acquire) != 0;
}

int ControlSegment::failed_rank() const noexcept {
  return Diagnosis::unpack(view().header().diagnosis.load(std::memory_order_acquire)).rank;
}

void ControlSegment::require_intact() const {
  if (broken()) raise();
}

void ControlSegment::check_peers(std::uint64_t fence) const {
  require_intact();
  mark_failed_peers(fence);
  require_intact();
}

void ControlSegment::mark_failed_peers(std::uint64_t fence) const {
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const flight::Rank& other = view().rank(i);
    switch (state_of(other)) {
      case State::finished:
        // It completed its device work before it left: nothing is missing up to its last fence.
        if (other.fence.load(std::memory_order_acquire) < fence) mark_failed(i, Reason::left);
        continue;
      case State::aborted:
        mark_failed(i, Reason::aborted);
        break;
      case State::running:
        break;
    }
    const auto& peer = peers_[static_cast<std::size_t>(i)];
    // It may have finished between the two checks.
    if (peer && peer->has_ended() && state_of(other) != State::finished)
      mark_failed(i, Reason::died);
  }
  detect_lost_rank();
}

void ControlSegment::abort() noexcept {
  if (!is_owner()) return;
  if (!broken()) view().rank(rank_).state.store(static_cast<std::uint32_t>(State::aborted));
  mark_failed(rank_, Reason::aborted);
}

void ControlSegment::abort_after(std::chrono::milliseconds timeout) noexcept {
  abort_after_ns_ = std::chrono::nanoseconds(timeout).count();
}

void ControlSegment::finish(std::chrono::milliseconds timeout) noexcept {
  if (has_finished_ || !is_owner()) return;
  has_finished_ = true;
  Watchdog::remove(*this);
  // Devices do not report calls that need not wait; all calls of this rank have ended by now.
  DeviceWords& mine = *device_words();
  const std::uint64_t newest = view().newest_number(rank_, flight::Queue::collective);
  if (!broken() && newest > view().words(rank_).progress(flight::Queue::collective).finished) {
    __atomic_store_n(&mine.started, newest, __ATOMIC_RELEASE);
    __atomic_store_n(&mine.finished, newest, __ATOMIC_RELEASE);
  }
  auto expected = static_cast<std::uint32_t>(State::running);
  view().rank(rank_).state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(State::finished));
  view().rank(rank_).closed.store(1, std::memory_order_release);
  const bool last = view().header().finished.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_);
  // The file of a broken group stays, since it holds the diagnosis.
  if (last && !broken()) file_->retire();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int i = 0; i < size_; ++i) {
    const auto& peer = peers_[static_cast<std::size_t>(i)];
    // In a broken group, a rank needs no memory of other ranks once its kernels have ended.
    const auto needs_others = [&] {
      const flight::Rank& other = view().rank(i);
      return broken() ? state_of(other) == State::running && is_busy(i) : !has_closed(other);
    };
    while (peer && needs_others() && !peer->has_ended() &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::function<bool()> ControlSegment::closing() const {
  const auto is_remote = [](const auto& peer) { return peer != nullptr; };
  // Without a hold on the file, so that the next group can take it over.
  if (std::ranges::none_of(peers_, is_remote)) return [] { return true; };
  return [file = file_, peers = peers_] {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const flight::Rank& other = file->view().rank(static_cast<int>(i));
      if (peers[i] && !has_closed(other) && !peers[i]->has_ended()) return false;
    }
    return true;
  };
}

// Note [One diagnosis]
// Ranks detect a failure at different times and see different effects: one rank dies, a second
// stops, and a third sees that both left. The first rank that detects the failure writes the
// diagnosis for all ranks, by a compare-and-swap of one word. The word names its author. A text
// stands in memory that only the author writes, and only before the word is there.
void ControlSegment::mark_failed(int rank, Reason reason,
                                 const flight::Detail& detail) const noexcept {
  GANTRY_ASSERT(0 <= rank && rank < size_, "a rank failed that the group does not have");
  publish_diagnosis(rank, reason, detail);
  wake_kernels();
}

void ControlSegment::publish_diagnosis(int rank, Reason reason,
                                       const flight::Detail& detail) const noexcept {
  std::string packed;
  try {
    if (!detail.text.empty()) packed = detail.pack();
  } catch (const std::bad_alloc&) {
    // The reason and the rank are enough.
  }
  // Threads of this rank write one after the other. Once a diagnosis is there, nobody writes.
  const std::lock_guard lock(diagnosis_mutex_);
  if (broken()) return;
  char(&text)[sizeof(flight::Rank::detail)] = view().rank(rank_).detail;
  std::memset(text, 0, sizeof text);
  std::memcpy(text, packed.data(), std::min(packed.size(), sizeof text - 1));
  const Diagnosis diagnosis{
      .reason = reason, .rank = rank, .call = running_call(), .author = rank_};
  std::uint64_t none = 0;
  view().header().diagnosis.compare_exchange_strong(none, diagnosis.pack(),
                                                    std::memory_order_acq_rel);
}

void ControlSegment::wake_kernels() const noexcept {
  for (int i = 0; i < size_; ++i) __atomic_store_n(&words(i)->abort, 1, __ATOMIC_RELEASE);
  const std::lock_guard lock(loss_mutex_);
  if (loss_callback_) loss_callback_();
}

void ControlSegment::on_loss(std::function<void()> callback) {
  const std::lock_guard lock(loss_mutex_);
  loss_callback_ = std::move(callback);
}

void ControlSegment::raise() const {
  const Diagnosis diagnosis =
      Diagnosis::unpack(view().header().diagnosis.load(std::memory_order_acquire));
  const std::string message = describe_diagnosis(diagnosis);
  flight::Detail detail = flight::Detail::of(view(), diagnosis);
  if (diagnosis.reason == Reason::mismatch) {
    throw_mismatch(message, std::move(detail.ranks), std::move(detail.calls));
  }
  if (diagnosis.reason == Reason::timed_out) {
    if (detail.ranks.empty()) detail.ranks = {diagnosis.rank};
    report_to_launcher({.kind = FailureKind::timed_out,
                        .message = message,
                        .ranks = job_ranks(view(), detail.ranks)});
    throw TimeoutError(message, detail.ranks);
  }
  if (diagnosis.rank != rank_) {
    report_to_launcher({.kind = FailureKind::peer_lost,
                        .message = message,
                        .ranks = job_ranks(view(), {diagnosis.rank})});
  }
  throw PeerLostError(message, diagnosis.rank);
}

void ControlSegment::throw_mismatch(const std::string& text, std::vector<int> ranks,
                                    std::vector<std::string> calls) const {
  const CollectiveMismatch error(with_name(text), std::move(ranks), std::move(calls));
  report_mismatch(error);
  throw error;
}

void ControlSegment::report_mismatch(const CollectiveMismatch& error) const noexcept {
  try {
    report_to_launcher({.kind = FailureKind::mismatch,
                        .message = error.what(),
                        .ranks = job_ranks(view(), error.ranks())});
  } catch (const std::bad_alloc&) {
    // The caller still throws the error.
  }
}

std::string ControlSegment::call_suffix(std::uint64_t call, flight::Queue queue, int rank) const {
  if (call == 0) return {};
  std::optional<flight::Record> record = rank < 0 ? std::nullopt : view().find(rank, queue, call);
  // Ranks number collectives alike, and messages each for itself.
  for (int i = 0; i < size_ && !record && queue == flight::Queue::collective; ++i) {
    record = view().find(i, queue, call);
  }
  if (!record) return fmt::format(" #{}", flight::plain_number(call));
  return fmt::format(" #{} {}", flight::plain_number(call), view().text(*record));
}

std::string ControlSegment::timeout_text(const std::vector<int>& missing, std::string_view verb,
                                         std::uint64_t call, std::chrono::milliseconds timeout,
                                         flight::Queue queue) const {
  const std::optional<flight::Record> mine = view().find(rank_, queue, call);
  const bool is_lone_send = queue == flight::Queue::send && mine && mine->is_grouped == 0;
  return with_name(fmt::format(
      "collective: rank {} waited {}, but rank(s) {} did not {} the operation{} ({}){}", rank_,
      duration_text(timeout_.or_of_call(timeout)), fmt::join(missing, ", "), verb,
      call_suffix(call, queue, rank_), timeout_.source(timeout), is_lone_send ? kSendRemedy : ""));
}

std::string ControlSegment::describe_diagnosis(const Diagnosis& diagnosis) const {
  const char* how = "was lost";
  const std::string detail = flight::Detail::of(view(), diagnosis).text;
  switch (diagnosis.reason) {
    case Reason::died:
      how = "died";
      break;
    case Reason::left:
      how = "has left the job";
      break;
    case Reason::aborted:
      how = "aborted";
      break;
    case Reason::lost:
      how = "left the job";
      break;
    case Reason::timed_out:
      if (!detail.empty()) return detail;
      return fmt::format("collective: rank(s) {} did not enter the operation{}", diagnosis.rank,
                         call_suffix(diagnosis.call));
    case Reason::mismatch:
      if (!detail.empty()) return detail;
      return fmt::format(
          "collective{}: expected the same call on every rank, but rank {} called "
          "another one",
          call_suffix(diagnosis.call), diagnosis.rank);
    case Reason::none:
      break;
  }
  std::string text =
      fmt::format("rank {} {}; the communicator{} of {} ranks is unusable", diagnosis.rank, how,
                  name_.empty() ? "" : fmt::format(" '{}'", name_), size_);
  if (diagnosis.call != 0) {
    text += fmt::format(" (during collective{})", call_suffix(diagnosis.call));
  }
  return text;
}

}  // namespace gantry
