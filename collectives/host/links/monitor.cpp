// The knowledge of the connections between hosts about the other ranks' processes.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/host/links/connections.hpp"

namespace gantry {

namespace {

// For the replies of processes that run, on a busy machine too.
constexpr auto kProbeTimeout = std::chrono::milliseconds(1500);

}  // namespace

void Connections::send_word(const End& end, const ControlMessage& message) noexcept {
  const LastWord word = end.key.last_word(end.side(), message);
  [[maybe_unused]] const auto sent =
      send(end.socket.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Connections::take_passing(const End& end, int rank, const ControlMessage& message) {
  switch (message.kind) {
    case ControlMessage::Kind::probe:
      send_word(end, {ControlMessage::Kind::alive, group_.rank, message.token, progress_});
      return true;
    case ControlMessage::Kind::alive:
      if (message.token == token_ && !replies_.empty()) {
        replies_[static_cast<std::size_t>(rank)] = message.progress;
        changed_.notify_all();
      }
      return true;
    case ControlMessage::Kind::no_nccl:
      spread_no_nccl(message.failed_rank);
      return true;
    case ControlMessage::Kind::none:
    case ControlMessage::Kind::left:
    case ControlMessage::Kind::lost:
    case ControlMessage::Kind::late:
    case ControlMessage::Kind::aborted:
    case ControlMessage::Kind::confirmed:
      break;
  }
  return false;
}

void Connections::report_failure(std::unique_lock<std::mutex>& lock) {
  if (!failure_ || has_caused_it_ || !on_failure_) return;
  lock.unlock();
  {
    const std::lock_guard calling(callback_mutex_);
    lock.lock();
    const auto callback = std::exchange(on_failure_, nullptr);
    const LinkFailure why = *failure_;
    lock.unlock();
    if (callback) callback(LinkError::error_of(group_, why.message, why.text, why.from));
  }
  lock.lock();
}

void Connections::on_failure(std::function<void(std::exception_ptr)> callback) {
  const std::lock_guard calling(callback_mutex_);
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(callback);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto woken = write(descriptors_.wake.get(), &one, sizeof one);
}

std::exception_ptr Connections::failure() const {
  const std::lock_guard lock(mutex_);
  if (!failure_ || has_caused_it_) return nullptr;
  return LinkError::error_of(group_, failure_->message, failure_->text, failure_->from);
}

void Connections::set_progress(const RankProgress& progress) noexcept {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
}

std::vector<std::optional<RankProgress>> Connections::probe() {
  const std::lock_guard probing(probing_);
  constexpr auto kAll = std::numeric_limits<std::uint64_t>::max();
  std::unique_lock lock(mutex_);
  if (last_) return {};
  ++token_;
  replies_.assign(pairs_.size(), std::nullopt);
  for (std::size_t rank = 0; rank < pairs_.size(); ++rank) {
    const End& control = end_of(pairs_[rank], Purpose::control);
    if (static_cast<int>(rank) == group_.rank) {
      replies_[rank] = progress_;
    } else if (!control.socket) {  // it has left, or was never met
      replies_[rank] = RankProgress{kAll, kAll};
    } else {
      send_word(control, {ControlMessage::Kind::probe, group_.rank, token_, {}});
    }
  }
  changed_.wait_for(lock, kProbeTimeout, [&] {
    const auto has_replied = [](const auto& reply) { return reply.has_value(); };
    return failure_ || std::ranges::all_of(replies_, has_replied);
  });
  auto replies = std::exchange(replies_, {});
  // Ranks whose replies a failure cut off are not silent.
  if (failure_ || last_) replies.clear();
  return replies;
}

void Connections::report_late(int rank) noexcept {
  notify(ControlMessage::of_late(rank, group_.rank, group_.timeout.kind_of_source()));
}

void Connections::report_no_nccl() noexcept {
  const std::lock_guard lock(mutex_);
  spread_no_nccl(group_.rank);
}

void Connections::spread_no_nccl(int rank) noexcept {
  if (rank_without_nccl_ >= 0) return;
  rank_without_nccl_ = rank;
  for (const Pair& other : pairs_) {
    const End& control = other.ends[static_cast<std::size_t>(Purpose::control)];
    if (control.socket) send_word(control, {ControlMessage::Kind::no_nccl, rank});
  }
}

int Connections::rank_without_nccl() const noexcept {
  const std::lock_guard lock(mutex_);
  return rank_without_nccl_;
}

}  // namespace gantry
