#include "collectives/call_faults.hpp"

#include <algorithm>
#include <utility>

namespace gantry {

void CallFaults::add(CallFault fault, bool is_news) {
  const std::lock_guard lock(mutex_);
  // A graph may have run the call before.
  faults_.insert_or_assign(fault.call, Entry{std::move(fault.error), is_news});
  if (faults_.size() > kKept) faults_.erase(faults_.begin());
  note_news();
}

void CallFaults::raise(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  if (const auto found = faults_.find(call); found != faults_.end()) tell(found->second);
}

void CallFaults::raise_news() {
  if (!has_news()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [call, entry] : faults_) {
    if (entry.is_news) tell(entry);
  }
}

void CallFaults::note_news() {
  has_news_.store(std::ranges::any_of(faults_, [](const auto& it) { return it.second.is_news; }),
                  std::memory_order_release);
}

void CallFaults::tell(Entry& entry) {
  entry.is_news = false;
  note_news();
  std::rethrow_exception(entry.error);
}

}  // namespace gantry
