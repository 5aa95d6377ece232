// Compiled programs of this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gantry::kernels::jit {

// Programs by key. Each is made once, by the first thread that asks; others wait for that thread,
// but not for other programs. A program that could not be made is tried again. Programs stay until
// the process ends.
template <class Program>
class ProgramTable {
 public:
  template <class Make>
  Program get(const std::string& key, const Make& make) {
    const std::shared_ptr<Slot> slot = slot_of(key);
    const std::lock_guard lock(slot->mutex);
    if (!slot->program) slot->program = make();
    return *slot->program;
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::optional<Program> program;
  };

  std::shared_ptr<Slot> slot_of(const std::string& key) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& slot = slots_[key];
    if (!slot) slot = std::make_shared<Slot>();
    return slot;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Slot>> slots_;
};

}  // namespace gantry::kernels::jit
