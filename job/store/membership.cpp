#include "job/store/membership.hpp"

#include <algorithm>

#include "core/assert.hpp"

namespace gantry::store {

void JobMembership::connect(int rank) {
  const std::lock_guard lock(mutex_);
  connected_.insert(rank);
}

void JobMembership::disconnect(int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = connected_.find(rank);
  GANTRY_ASSERT(found != connected_.end(), "a rank disconnects that was not connected");
  if (found != connected_.end()) connected_.erase(found);
}

bool JobMembership::is_connected(int rank) const {
  const std::lock_guard lock(mutex_);
  return connected_.contains(rank);
}

void JobMembership::deregister(int rank) {
  const std::lock_guard lock(mutex_);
  deregistered_.insert(rank);
}

bool JobMembership::has_deregistered(int rank) const {
  const std::lock_guard lock(mutex_);
  return deregistered_.contains(rank);
}

bool JobMembership::mark_lost(int rank) {
  const std::lock_guard lock(mutex_);
  if (std::find(lost_.begin(), lost_.end(), rank) != lost_.end()) return false;
  lost_.push_back(rank);
  return true;
}

std::vector<int> JobMembership::connected() const {
  const std::lock_guard lock(mutex_);
  return {connected_.begin(), connected_.end()};
}

std::vector<int> JobMembership::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace gantry::store
