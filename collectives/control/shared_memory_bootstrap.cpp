#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/control/segment.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

// Note [Mailboxes]
// Each rank owns a mailbox. In a round of all_gather every member first posts a chunk with the
// total length of its text. So all members know how many chunks the longest text needs, and all
// post that many. A mailbox holds one chunk, identified by the numbers of the bootstrap and of the
// chunk. Every other member reads it and increments the reader count; then it is overwritten. The
// increment fails if the owner has withdrawn the chunk, so a late reader cannot corrupt the next
// one. Only one group uses the mailboxes of a file at a time. A group that is made through another
// group's mailboxes continues with its own, since both groups may then be in use.
constexpr int kReaderBits = 16;
constexpr int kStepBits = 24;
constexpr auto kLivenessPeriod = std::chrono::milliseconds(5);

class SharedMemoryBootstrap final : public Bootstrap {
 public:
  struct Member {
    int rank;                                     // in the group of the file
    std::shared_ptr<const ProcessWatch> process;  // null: this process
  };

  SharedMemoryBootstrap(std::shared_ptr<ControlFile> file, std::vector<Member> members,
                        std::size_t me, std::uint64_t generation, GroupTimeout timeout)
      : file_(std::move(file)),
        members_(std::move(members)),
        me_(me),
        generation_(generation),
        timeout_(std::move(timeout)) {}

  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<std::string> all(members_.size());
    std::size_t longest = bytes.size();
    std::size_t sent = 0;
    do {
      const std::uint64_t chunk = next_chunk();
      const std::size_t part = std::min(bytes.size() - sent, flight::kPieceBytes);
      post(chunk, bytes.data() + sent, part, bytes.size());
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (i != me_) longest = std::max(longest, take(i, chunk, all[i]));
      }
      await([&](std::size_t i) { return i != me_ || readers() + 1 == members_.size(); });
      sent += part;
      offset_ += flight::kPieceBytes;
    } while (offset_ < longest);
    offset_ = 0;
    all[me_] = bytes;
    return all;
  }

  std::unique_ptr<Bootstrap> move_to(const ControlSegment& own) override {
    return through(own, members_.size());
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    if (members.size() == 1) return make_single_bootstrap();
    const std::string key = fmt::format("{}/{}/{}", generation_, name, fmt::join(members, "-"));
    const std::string text = fmt::format("{}#{}", key, subsets_[key]++);
    const int me = rank_among(members, static_cast<int>(me_));
    return std::make_unique<SharedMemoryBootstrap>(file_, entries_of(members_, members),
                                                   static_cast<std::size_t>(me),
                                                   std::hash<std::string>{}(text), timeout_);
  }

 private:
  flight::Mailbox& mailbox(std::size_t member) const {
    return file_->view().mailbox(members_[member].rank);
  }

  static std::uint64_t piece_of(std::uint64_t word) { return word >> kReaderBits; }

  std::uint64_t readers() const {
    return mailbox(me_).piece.load(std::memory_order_acquire) & ((1U << kReaderBits) - 1);
  }

  std::uint64_t next_chunk() {
    const std::uint64_t mask = (std::uint64_t{1} << kStepBits) - 1;
    return (generation_ & mask) << kStepBits | (++steps_ & mask);
  }

  void post(std::uint64_t chunk, const char* data, std::size_t bytes, std::size_t total) {
    flight::Mailbox& mine = mailbox(me_);
    mine.piece.store(0, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    mine.total_bytes = total;
    if (bytes > 0) std::memcpy(mine.data, data, bytes);
    ControlFile::publish();
    mine.piece.store(chunk << kReaderBits, std::memory_order_release);
  }

  // Appends the chunk in a member's mailbox to `text`. Returns the total length.
  std::size_t take(std::size_t member, std::uint64_t chunk, std::string& text) {
    flight::Mailbox& box = mailbox(member);
    await([&](std::size_t i) {
      return i != member || piece_of(box.piece.load(std::memory_order_acquire)) == chunk;
    });
    ControlFile::acquire();
    const std::uint64_t total = box.total_bytes;
    const std::size_t part =
        std::min<std::uint64_t>(total - std::min(total, offset_), flight::kPieceBytes);
    text.append(reinterpret_cast<const char*>(box.data), part);
    std::uint64_t word = box.piece.load(std::memory_order_acquire);
    do {
      if (piece_of(word) != chunk) {
        raise(FailureKind::peer_lost, fmt::format("{}: rank {} gave up", purpose(), member),
              {static_cast<int>(member)});
      }
    } while (!box.piece.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel));
    return total;
  }

  // Throws, and reports the members' job ranks to the launcher.
  [[noreturn]] void raise(FailureKind kind, const std::string& text,
                          const std::vector<int>& members) const {
    std::vector<int> ranks;
    for (const int member : members) {
      ranks.push_back(members_[static_cast<std::size_t>(member)].rank);
    }
    report_to_launcher(
        {.kind = kind, .message = text, .ranks = flight::job_ranks(file_->view(), ranks)});
    if (kind == FailureKind::timed_out) throw TimeoutError(text, members);
    throw PeerLostError(text, members.front());
  }

  // Waits until done(i) for every member. Throws if a member ends before.
  template <class Done>
  void await(Done done) const {
    using Clock = std::chrono::steady_clock;
    SuspendAwareTimeout countdown(timeout_.get());
    Clock::time_point next_check = Clock::now() + kLivenessPeriod;
    for (std::uint64_t spins = 0;; ++spins) {
      std::size_t waiting = 0;
      while (waiting < members_.size() && done(waiting)) ++waiting;
      if (waiting == members_.size()) return;
      if (spins < 200) continue;
      if (spins < 5000) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      const Clock::time_point now = Clock::now();
      if (now < next_check) continue;
      next_check = now + kLivenessPeriod;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        // It may have done its part just before it ended.
        if (members_[i].process && members_[i].process->has_ended() && !done(waiting)) {
          raise(FailureKind::peer_lost, fmt::format("{}: rank {} died", purpose(), i),
                {static_cast<int>(i)});
        }
      }
      if (countdown.has_expired(now)) {
        std::vector<int> missing;
        for (std::size_t i = 0; i < members_.size(); ++i) {
          // The reader count does not identify the missing readers.
          const bool is_missing = waiting == me_ ? i != me_ : !done(i);
          if (is_missing) missing.push_back(static_cast<int>(i));
        }
        raise(FailureKind::timed_out, absence_text(static_cast<int>(me_), timeout_.get(), missing),
              missing);
      }
    }
  }

  std::shared_ptr<ControlFile> file_;
  std::vector<Member> members_;
  std::size_t me_;
  std::uint64_t generation_;
  GroupTimeout timeout_;
  std::uint64_t steps_ = 0;
  std::uint64_t offset_ = 0;  // of the chunk in the round
  std::map<std::string, int> subsets_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_shared_memory_bootstrap(const ControlSegment& control,
                                                        const std::vector<int>& members,
                                                        std::uint64_t generation) {
  if (members.size() == 1) return make_single_bootstrap();
  std::vector<SharedMemoryBootstrap::Member> some;
  std::size_t me = 0;
  for (const int rank : members) {
    if (rank == control.rank()) me = some.size();
    some.push_back({rank, control.peers().at(static_cast<std::size_t>(rank))});
  }
  return std::make_unique<SharedMemoryBootstrap>(control.file(), std::move(some), me, generation,
                                                 control.timeout());
}

}  // namespace gantry
