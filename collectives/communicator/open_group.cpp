// Open groups of messages, and their submission.

#include "collectives/communicator/open_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/communicator/impl.hpp"

namespace gantry {

std::shared_ptr<Communicator::OpenGroup> Communicator::Impl::open_group() const {
  if (!has_open_groups_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(open_mutex_);
  const auto found = std::ranges::find(open_groups_, std::this_thread::get_id(),
                                       [](const auto& group) { return group->thread; });
  return found != open_groups_.end() ? *found : nullptr;
}

void Communicator::Impl::open(std::shared_ptr<OpenGroup> group) {
  if (const auto other = open_group()) {
    throw InvalidArgument(fmt::format(
        "group: expected no open group of this communicator on this thread, but got one "
        "with {} message(s)",
        other->messages.size()));
  }
  const std::lock_guard lock(open_mutex_);
  open_groups_.push_back(std::move(group));
  has_open_groups_.store(true, std::memory_order_release);
}

void Communicator::Impl::close(const OpenGroup& group) noexcept {
  const std::lock_guard lock(open_mutex_);
  std::erase_if(open_groups_, [&](const auto& open) { return open.get() == &group; });
  has_open_groups_.store(!open_groups_.empty(), std::memory_order_release);
}

void Communicator::Impl::require_no_open_group(CollectiveKind kind) const {
  const auto open = open_group();
  if (open == nullptr) return;
  throw InvalidArgument(
      fmt::format("{}: expected send, recv or send_recv inside group(), but got {} after {} "
                  "message(s); end the group first",
                  gantry::name(kind), gantry::name(kind), open->messages.size()));
}

void Communicator::Impl::fail_next(std::exception_ptr error) noexcept {
  const std::lock_guard lock(open_mutex_);
  if (!next_failure_) next_failure_ = std::move(error);
  has_next_failure_.store(true, std::memory_order_release);
}

void Communicator::Impl::raise_next_failure() {
  if (!has_next_failure_.load(std::memory_order_acquire)) return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(open_mutex_);
    has_next_failure_.store(false, std::memory_order_release);
    failure = std::exchange(next_failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gantry
