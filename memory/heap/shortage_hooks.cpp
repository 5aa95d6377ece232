#include "memory/heap/shortage_hooks.hpp"

#include <mutex>
#include <vector>

namespace gantry::memory {
namespace {

struct Hooks {
  std::mutex mutex;
  std::vector<ShortageHook> all;
};

// Never destroyed: memory may run short at the process's exit.
Hooks& hooks() {
  static auto& instance = *new Hooks();
  return instance;
}

}  // namespace

void add_shortage_hook(ShortageHook hook) {
  const std::lock_guard lock(hooks().mutex);
  hooks().all.push_back(hook);
}

bool run_shortage_hooks(int device) noexcept {
  const std::lock_guard lock(hooks().mutex);
  bool any = false;
  for (const ShortageHook hook : hooks().all) any = hook(device) || any;
  return any;
}

}  // namespace gantry::memory
