#include "collectives/control/locked_words.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "memory/heap/memory_pressure.hpp"

namespace gantry {

LockedWords::LockedWords() {
  memory::MemoryPressureCallbacks::instance().add([](int, memory::Waiting waiting) noexcept {
    return waiting == memory::Waiting::allowed && instance().unlock_kept();
  });
}

LockedWords& LockedWords::instance() {
  static auto& words = *new LockedWords;
  return words;
}

void LockedWords::unlock(const flight::View& view, int rank) noexcept {
  try {
    driver().unregister_host(&view.words(rank));
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving a communicator: {}", error.what()));
  }
}

void LockedWords::join() noexcept {
  const std::lock_guard lock(mutex_);
  has_several_ranks_ = true;
  ++members_;
}

void LockedWords::leave() noexcept {
  const std::lock_guard lock(mutex_);
  --members_;
}

bool LockedWords::has_several_ranks() noexcept {
  const std::lock_guard lock(mutex_);
  return has_several_ranks_;
}

void LockedWords::release(std::shared_ptr<ControlFile> file, int rank) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (has_several_ranks_) {
      try {
        entries_.push_back({file, rank});
      } catch (const std::bad_alloc&) {  // leave them locked rather than wait
        (void)new (std::nothrow) std::shared_ptr<ControlFile>(std::move(file));
      }
      return;
    }
  }
  unlock(file->view(), rank);
}

bool LockedWords::unlock_kept() noexcept {
  std::vector<Entry> ready;
  {
    const std::lock_guard lock(mutex_);
    if (members_ == 0) ready.swap(entries_);
  }
  for (const Entry& entry : ready) unlock(entry.file->view(), entry.rank);
  return !ready.empty();
}

}  // namespace gantry
