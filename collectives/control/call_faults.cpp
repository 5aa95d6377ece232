#include "collectives/control/call_faults.hpp"

#include <algorithm>
#include <utility>

namespace gantry {

void CallFaults::add(CallFault fault, bool is_unreported) {
  const std::lock_guard lock(mutex_);
  // A graph may have run the call before.
  faults_.insert_or_assign(fault.call, Entry{std::move(fault.error), is_unreported});
  if (faults_.size() > kKept) faults_.erase(faults_.begin());
  update_unreported();
}

std::exception_ptr CallFaults::oldest() {
  const std::lock_guard lock(mutex_);
  return faults_.empty() ? nullptr : faults_.begin()->second.error;
}

void CallFaults::raise(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  if (const auto found = faults_.find(call); found != faults_.end()) report(found->second);
}

void CallFaults::raise_unreported() {
  if (!has_unreported()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [call, entry] : faults_) {
    if (entry.is_unreported) report(entry);
  }
}

void CallFaults::update_unreported() {
  has_unreported_.store(
      std::ranges::any_of(faults_, [](const auto& it) { return it.second.is_unreported; }),
      std::memory_order_release);
}

void CallFaults::report(Entry& entry) {
  entry.is_unreported = false;
  update_unreported();
  std::rethrow_exception(entry.error);
}

}  // namespace gantry
