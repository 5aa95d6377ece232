#include "collectives/control/block.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/driver.hpp>

#include "collectives/call_style.hpp"
#include "collectives/control/watchdog.hpp"
#include "collectives/failure_note.hpp"
#include "collectives/transport.hpp"
#include "memory/source/driver_memory.hpp"

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
              offsetof(DeviceWords, fault) == offsetof(flight::Words, fault));
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

// While they are mapped: a later mapping at their address could not be locked.
void unlock_words(const flight::View& view, int rank) noexcept {
  try {
    driver().unregister_host(&view.words(rank));
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving a communicator: {}", error.what()));
  }
}

// Note [Unlocking words]
// To unlock pages waits for all devices of the process. Where several of its ranks are in a group,
// a kernel of one may wait for what the thread that leaves another group does next. So while there
// is such a group words that are given up stay locked, and mapped; the last one takes them along.
class LockedWords {
 public:
  // Of a group with several ranks in this process, one of which begins.
  void join() {
    const std::lock_guard lock(mutex_);
    ++members_;
  }
  // One ends.
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    --members_;
  }
  void give_up(std::shared_ptr<ControlFile> file, int rank) noexcept {
    std::vector<Entry> ready;
    {
      const std::lock_guard lock(mutex_);
      try {
        entries_.push_back({file, rank});
      } catch (const std::bad_alloc&) {  // locked for good, rather than waited for
        (void)new (std::nothrow) std::shared_ptr<ControlFile>(std::move(file));
      }
      if (members_ == 0) ready.swap(entries_);
    }
    for (const Entry& entry : ready) unlock_words(entry.file->view(), entry.rank);
  }

  // Never destroyed: groups may outlive static objects.
  static LockedWords& instance() {
    static auto& words = *new LockedWords;
    return words;
  }

 private:
  struct Entry {
    std::shared_ptr<ControlFile> file;
    int rank;
  };

  std::mutex mutex_;
  int members_ = 0;
  std::vector<Entry> entries_;
};

bool has_closed(const flight::Rank& rank) {
  return rank.closed.load(std::memory_order_acquire) != 0;
}

}  // namespace

ControlBlock::ControlBlock(Bootstrap& bootstrap, int rank, int size,
                           std::chrono::milliseconds timeout, std::string_view group)
    : bootstrap_(bootstrap),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      file_(std::make_shared<ControlFile>(
          bootstrap, rank, size, timeout, group,
          ControlFile::Use{
              .begin = [rank](const flight::View& view) { lock_words(view, rank); },
              .end = [rank](const flight::View& view) { unlock_words(view, rank); }})) {
  try {
    const ProcessStamp self = this_process();
    for (const ProcessStamp& process : file_->processes()) {
      peers_.push_back(process == self ? nullptr : share_peer(process));
    }
    Watchdog::add(*this);
  } catch (...) {
    Watchdog::remove(*this);
    LockedWords::instance().give_up(file_, rank_);
    throw;
  }
  if (is_among_several()) LockedWords::instance().join();
}

ControlBlock::~ControlBlock() {
  if (!is_mine()) return;
  finish(std::chrono::milliseconds(0));
  if (is_among_several()) LockedWords::instance().leave();
  LockedWords::instance().give_up(file_, rank_);
}

bool ControlBlock::is_among_several() const noexcept {
  return std::count(peers_.begin(), peers_.end(), nullptr) > 1;
}

bool ControlBlock::is_mine() const noexcept { return view().rank(rank_).pid == getpid(); }

void ControlBlock::describe_device(std::string_view text) {
  auto& field = view().rank(rank_).device;
  std::memcpy(field, text.data(), std::min(text.size(), sizeof field - 1));
}

void ControlBlock::record(const Descriptor& what, Algorithm algorithm, std::int64_t bytes,
                          std::uint64_t stream, std::span<const std::int64_t> sends,
                          std::span<const std::int64_t> receives, bool is_grouped) noexcept {
  withdraw_note(FailureKind::mismatch);  // which the program has survived
  flight::Rank& mine = view().rank(rank_);
  const std::uint64_t ticket = mine.recorded.load(std::memory_order_relaxed) + 1;
  const flight::Record record{.call = to_call(what),
                              .bytes = bytes,
                              .stream = stream,
                              .enqueued_ns = flight::monotonic_ns(),
                              .algorithm = static_cast<std::uint8_t>(algorithm),
                              .is_grouped = is_grouped ? std::uint8_t{1} : std::uint8_t{0},
                              .reserved = {}};
  // Before the record, with which others find them.
  if (!sends.empty()) {
    const auto number = static_cast<std::uint64_t>(what.call);
    view().block_counts(rank_, number).put(number, sends, receives);
  }
  view().ring(rank_)[ticket % flight::kRing].put(ticket, record);
  mine.recorded.store(ticket, std::memory_order_release);
}

DeviceWords* ControlBlock::words(int rank) const {
  return reinterpret_cast<DeviceWords*>(&view().words(rank));
}

bool ControlBlock::broken() const noexcept {
  return view().header().diagnosis.load(std::memory_order_acquire) != 0;
}

int ControlBlock::failed_rank() const noexcept {
  return Diagnosis::unpack(view().header().diagnosis.load(std::memory_order_acquire)).rank;
}

void ControlBlock::require_intact() const {
  if (broken()) raise();
}

void ControlBlock::check_peers(std::uint64_t fence) const {
  require_intact();
  look_at_peers(fence);
  require_intact();
}

void ControlBlock::look_at_peers(std::uint64_t fence) const {
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const flight::Rank& other = view().rank(i);
    switch (state_of(other)) {
      case State::finished:
        // It completed its device work before it left; nothing is missing up to its last fence.
        if (other.fence.load(std::memory_order_acquire) < fence) blame(i, Reason::left);
        continue;
      case State::aborted:
        blame(i, Reason::aborted);
        break;
      case State::running:
        break;
    }
    const auto& peer = peers_[static_cast<std::size_t>(i)];
    // It may have left in order between the two looks.
    if (peer && !peer->alive() && state_of(other) != State::finished) blame(i, Reason::died);
  }
  look_for_lost_rank();
}

void ControlBlock::abort() noexcept {
  if (!is_mine()) return;
  if (!broken()) view().rank(rank_).state.store(static_cast<std::uint32_t>(State::aborted));
  blame(rank_, Reason::aborted);
}

void ControlBlock::abort_after(std::chrono::milliseconds timeout) noexcept {
  abort_after_ns_ = std::chrono::nanoseconds(timeout).count();
}

void ControlBlock::finish(std::chrono::milliseconds timeout) noexcept {
  if (departed_ || !is_mine()) return;
  departed_ = true;
  Watchdog::remove(*this);
  // Devices do not tell of calls that need not wait; all of this rank's have ended by now.
  DeviceWords& mine = *device_words();
  const std::uint64_t newest = view().newest_number(rank_, flight::Lane::collective);
  if (!broken() && newest > view().words(rank_).progress(flight::Lane::collective).finished) {
    __atomic_store_n(&mine.started, newest, __ATOMIC_RELEASE);
    __atomic_store_n(&mine.finished, newest, __ATOMIC_RELEASE);
  }
  auto expected = static_cast<std::uint32_t>(State::running);
  view().rank(rank_).state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(State::finished));
  view().rank(rank_).closed.store(1, std::memory_order_release);
  const bool last = view().header().finished.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_);
  // Of a group that broke, the file stays: it tells why.
  if (last && !broken()) file_->remove();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int i = 0; i < size_; ++i) {
    const auto& peer = peers_[static_cast<std::size_t>(i)];
    // Once the group is broken, a rank needs no memory of others when its kernels have ended.
    const auto needs_others = [&] {
      const flight::Rank& other = view().rank(i);
      return broken() ? state_of(other) == State::running && is_busy(i) : !has_closed(other);
    };
    while (peer && needs_others() && peer->alive() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::function<bool()> ControlBlock::closing() const {
  return [file = file_, peers = peers_] {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const flight::Rank& other = file->view().rank(static_cast<int>(i));
      if (peers[i] && !has_closed(other) && peers[i]->alive()) return false;
    }
    return true;
  };
}

// Note [One diagnosis]
// Ranks notice a failure at different times and see different effects: after one rank dies, a
// second gives up, and a third sees that both left. The first rank that notices decides for all, by
// a compare-and-swap of one word. A rank that reports a deadline claims the text first, and writes
// it before the word.
void ControlBlock::blame(int rank, Reason reason, const flight::Detail& detail) const noexcept {
  flight::Header& header = view().header();
  if (!broken()) {
    std::uint32_t nobody = 0;
    const auto me = static_cast<std::uint32_t>(rank_ + 1);
    if (!detail.text.empty()) {
      if (header.author.compare_exchange_strong(nobody, me)) {
        try {
          const std::string packed = detail.pack();
          std::memcpy(header.detail, packed.data(),
                      std::min(packed.size(), sizeof header.detail - 1));
        } catch (const std::bad_alloc&) {
          // The reason and the rank must do.
        }
      } else {
        // The other one is about to decide, unless it dies first.
        for (int turns = 0; turns < 1000 && !broken(); ++turns) sched_yield();
      }
    }
    const Diagnosis diagnosis{reason, rank, call_under_way()};
    std::uint64_t none = 0;
    header.diagnosis.compare_exchange_strong(none, diagnosis.pack(), std::memory_order_acq_rel);
  }
  wake_kernels();
}

void ControlBlock::wake_kernels() const noexcept {
  for (int i = 0; i < size_; ++i) __atomic_store_n(&words(i)->abort, 1, __ATOMIC_RELEASE);
  const std::lock_guard lock(loss_mutex_);
  if (tell_loss_) tell_loss_();
}

void ControlBlock::on_loss(std::function<void()> tell) {
  const std::lock_guard lock(loss_mutex_);
  tell_loss_ = std::move(tell);
}

void ControlBlock::raise() const {
  const Diagnosis diagnosis =
      Diagnosis::unpack(view().header().diagnosis.load(std::memory_order_acquire));
  const std::string message = describe_diagnosis(diagnosis);
  flight::Detail detail = flight::Detail::of(view().header());
  if (diagnosis.reason == Reason::mismatch) {
    throw_mismatch(message, std::move(detail.ranks), std::move(detail.calls));
  }
  if (diagnosis.reason == Reason::timed_out) {
    if (detail.ranks.empty()) detail.ranks = {diagnosis.rank};
    tell_launcher({.kind = FailureKind::timed_out,
                   .message = message,
                   .ranks = job_ranks(view(), detail.ranks)});
    throw TimeoutError(message, detail.ranks);
  }
  if (diagnosis.rank != rank_) {
    tell_launcher({.kind = FailureKind::peer_lost,
                   .message = message,
                   .ranks = job_ranks(view(), {diagnosis.rank})});
  }
  throw PeerLostError(message, diagnosis.rank);
}

void ControlBlock::throw_mismatch(const std::string& text, std::vector<int> ranks,
                                  std::vector<std::string> calls) const {
  const CollectiveMismatch error(text, std::move(ranks), std::move(calls));
  tell_mismatch(error);
  throw error;
}

void ControlBlock::tell_mismatch(const CollectiveMismatch& error) const noexcept {
  try {
    tell_launcher({.kind = FailureKind::mismatch,
                   .message = error.what(),
                   .ranks = job_ranks(view(), error.ranks())});
  } catch (const std::bad_alloc&) {
    // The error itself says more.
  }
}

std::string ControlBlock::call_suffix(std::uint64_t call, flight::Lane lane) const {
  if (call == 0) return {};
  for (int i = 0; i < size_; ++i) {
    if (const auto record = view().find(i, lane, call)) {
      return fmt::format(" #{} {}", flight::plain_number(call), view().text(record->call));
    }
  }
  return fmt::format(" #{}", flight::plain_number(call));
}

std::string ControlBlock::timeout_text(const std::vector<int>& missing, std::string_view verb,
                                       std::uint64_t call, flight::Lane lane) const {
  const std::optional<flight::Record> mine = view().find(rank_, lane, call);
  const bool is_lone_send = lane == flight::Lane::send && mine && mine->is_grouped == 0;
  return fmt::format(
      "collective: rank {} waited {}, but rank(s) {} did not {} the operation{} "
      "(GANTRY_COLL_TIMEOUT sets the deadline){}",
      rank_, duration_text(timeout_), fmt::join(missing, ", "), verb, call_suffix(call, lane),
      is_lone_send ? kSendRemedy : "");
}

std::string ControlBlock::describe_diagnosis(const Diagnosis& diagnosis) const {
  const char* how = "was lost";
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
      if (view().header().detail[0] != '\0') return flight::Detail::of(view().header()).text;
      return fmt::format("collective: rank(s) {} did not enter the operation{}", diagnosis.rank,
                         call_suffix(diagnosis.call));
    case Reason::mismatch:
      return flight::Detail::of(view().header()).text;
    case Reason::none:
      break;
  }
  std::string text = fmt::format("rank {} {}; the communicator of {} ranks is unusable",
                                 diagnosis.rank, how, size_);
  if (diagnosis.call != 0) {
    text += fmt::format(" (during collective{})", call_suffix(diagnosis.call));
  }
  return text;
}

}  // namespace gantry
