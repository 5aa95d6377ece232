#include "collectives/control/locked_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/file.hpp"
#include "memory/oom/memory_pressure.hpp"

namespace gantry {

LockedWords::Kept::~Kept() {
  if (file) unlock(file->view(), rank);
}

bool LockedWords::Kept::is_unused() const {
  if (file.use_count() != 1) return false;
  // A copy comes after the end of the other ones; use_count() alone orders nothing.
  const std::shared_ptr<ControlFile> after_others = file;
  return true;
}

LockedWords::LockedWords() {
  memory::MemoryPressureCallbacks::instance().add([](int, memory::Waiting waiting) noexcept {
    return waiting == memory::Waiting::allowed &&
           instance().kept_.free([](const Kept&) { return true; });
  });
  // The process unmaps the files when it ends, but their names would stay.
  (void)std::atexit(
      [] { instance().kept_.for_each([](Kept& kept) { kept.file->remove_retired(); }); });
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
  kept_.begin_sharing();
  has_several_ranks_ = true;
}

void LockedWords::release(std::shared_ptr<ControlFile> file, int rank) noexcept {
  Kept kept(std::move(file), rank);
  if (has_several_ranks()) kept_.keep(std::move(kept));
}

std::shared_ptr<ControlFile> LockedWords::take_file(int ranks) {
  auto taken = kept_.take([&](auto begin, auto end) {
    return std::find_if(begin, end, [&](const Kept& first) {
      if (first.rank != 0 || !first.file->is_reusable(ranks)) return false;
      return std::count_if(begin, end, [&](const Kept& kept) {
               return kept.file->number() == first.file->number() && kept.is_unused();
             }) == ranks;
    });
  });
  return taken ? std::exchange(taken->file, nullptr) : nullptr;
}

std::shared_ptr<ControlFile> LockedWords::take_mapping(std::uint64_t file, int rank) {
  auto taken = kept_.take([&](auto begin, auto end) {
    return std::find_if(begin, end, [&](const Kept& kept) {
      return kept.file->number() == file && kept.rank == rank && kept.is_unused();
    });
  });
  return taken ? std::exchange(taken->file, nullptr) : nullptr;
}

}  // namespace gantry
