#include "collectives/communicator/open_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry {

std::shared_ptr<Communicator::OpenGroup> Communicator::OpenGroup::List::mine() const {
  if (!has_groups_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(groups_, std::this_thread::get_id(),
                                       [](const auto& group) { return group->thread; });
  return found != groups_.end() ? *found : nullptr;
}

void Communicator::OpenGroup::List::open(std::shared_ptr<OpenGroup> group) {
  if (const auto other = mine()) {
    throw InvalidArgument(fmt::format(
        "group: expected no open group of this communicator on this thread, but got one "
        "with {} message(s)",
        other->messages.size()));
  }
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
  has_groups_.store(true, std::memory_order_release);
}

void Communicator::OpenGroup::List::close(const OpenGroup& group) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const auto& open) { return open.get() == &group; });
  has_groups_.store(!groups_.empty(), std::memory_order_release);
}

void Communicator::OpenGroup::List::require_none(CollectiveKind kind) const {
  const auto open = mine();
  if (open == nullptr) return;
  throw InvalidArgument(
      fmt::format("{}: expected send, recv or send_recv inside group(), but got {} after {} "
                  "message(s); end the group first",
                  gantry::name(kind), gantry::name(kind), open->messages.size()));
}

void Communicator::OpenGroup::List::fail_next(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  has_failure_.store(true, std::memory_order_release);
}

void Communicator::OpenGroup::List::raise_failure() {
  if (!has_failure_.load(std::memory_order_acquire)) return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    has_failure_.store(false, std::memory_order_release);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gantry
