#include "core/store_roll.hpp"

#include <algorithm>

namespace gantry::store {

void Roll::connect(int rank) {
  const std::lock_guard lock(mutex_);
  connected_.insert(rank);
}

void Roll::disconnect(int rank) {
  const std::lock_guard lock(mutex_);
  if (const auto found = connected_.find(rank); found != connected_.end()) connected_.erase(found);
}

bool Roll::is_connected(int rank) const {
  const std::lock_guard lock(mutex_);
  return connected_.contains(rank);
}

void Roll::say_goodbye(int rank) {
  const std::lock_guard lock(mutex_);
  goodbyes_.insert(rank);
}

bool Roll::said_goodbye(int rank) const {
  const std::lock_guard lock(mutex_);
  return goodbyes_.contains(rank);
}

bool Roll::lose(int rank) {
  const std::lock_guard lock(mutex_);
  if (std::find(lost_.begin(), lost_.end(), rank) != lost_.end()) return false;
  lost_.push_back(rank);
  return true;
}

std::vector<int> Roll::connected() const {
  const std::lock_guard lock(mutex_);
  return {connected_.begin(), connected_.end()};
}

std::vector<int> Roll::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace gantry::store
