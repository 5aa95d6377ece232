#include "core/stacks/call_site.hpp"

#include <fmt/format.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/stacks/call_site_symbols.hpp"
#include "core/stacks/gantry_code.hpp"
#include "core/thread_end.hpp"

namespace gantry::stacks {
namespace {

struct Walk {
  const CodeRanges* skip = nullptr;       ///< code left out at the top
  const CodeRanges* uncounted = nullptr;  ///< code that may be the program's or gantry's
  std::size_t max_counted = kMaxFrames;
  std::size_t counted = 0;
  std::size_t count = 0;
  std::array<std::uintptr_t, kMaxFrames> frames;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int is_before_call = 0;
  std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before_call);
  if (address == 0) return _URC_END_OF_STACK;
  if (is_before_call == 0) --address;  // of the call, not of what follows it
  if (walk.count == 0 && walk.skip->contains(address)) return _URC_NO_REASON;
  walk.frames[walk.count++] = address;
  if (!walk.uncounted->contains(address)) ++walk.counted;
  return walk.counted == walk.max_counted || walk.count == kMaxFrames ? _URC_END_OF_STACK
                                                                      : _URC_NO_REASON;
}

// All stacks seen, by number. A stack never changes or moves, so that threads may remember where
// it is.
struct StoredStack {
  std::uint64_t hash = 0;
  StackDepth depth = StackDepth::full;
  std::vector<std::uintptr_t> frames;

  [[nodiscard]] bool is(std::uint64_t other_hash, StackDepth other_depth, const Walk& walk) const {
    return hash == other_hash && depth == other_depth && frames.size() == walk.count &&
           std::memcmp(frames.data(), walk.frames.data(), walk.count * sizeof(walk.frames[0])) == 0;
  }
};

struct StackTable {
  std::mutex mutex;
  std::deque<StoredStack> stacks{1};  ///< number 0 is no stack
  std::unordered_multimap<std::uint64_t, std::uint32_t> numbers;

  std::mutex names_mutex;
  std::unordered_map<std::uint32_t, Frames> named;
};

StackTable& table() {
  static auto& instance = *new StackTable();
  return instance;
}

struct Known {
  const StoredStack* stack = nullptr;
  std::uint32_t number = 0;
};
constexpr std::size_t kKnownPerThread = 256;
using KnownStacks = std::array<Known, kKnownPerThread>;

// Note [Small thread-local memory]
// The loader fixes the addresses of some thread-local variables of this library (initial-exec),
// because hot paths read them. All thread-local variables of such a library count against glibc's
// reserve for libraries loaded by dlopen: 512 bytes in total. A thread-local variable is therefore
// a pointer. Its object is created at first use, and deleted by at_thread_end().
thread_local constinit KnownStacks* known_stacks = nullptr;
thread_local constinit bool has_ended = false;

// The stacks that this thread met; nullptr without memory, and at the end of the thread, whose
// thread-local objects may still free blocks.
KnownStacks* own_known_stacks() {
  if (known_stacks != nullptr || has_ended) return known_stacks;
  known_stacks = new (std::nothrow) KnownStacks{};
  if (known_stacks == nullptr) return nullptr;
  at_thread_end([]() noexcept {
    delete std::exchange(known_stacks, nullptr);
    has_ended = true;
  });
  return known_stacks;
}

std::uint64_t hash_of(const Walk& walk) {
  std::uint64_t hash = walk.count;
  for (std::size_t i = 0; i < walk.count; ++i) {
    hash = (hash ^ walk.frames[i]) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

Known find_or_add(std::uint64_t hash, StackDepth depth, const Walk& walk) {
  StackTable& all = table();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.numbers.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const StoredStack& stack = all.stacks[known->second];
    if (stack.is(hash, depth, walk)) return {&stack, known->second};
  }
  if (all.stacks.size() > std::numeric_limits<std::uint32_t>::max()) return {};
  const auto number = static_cast<std::uint32_t>(all.stacks.size());
  const auto place = all.numbers.emplace(hash, number);
  try {
    all.stacks.push_back(
        {hash,
         depth,
         {walk.frames.begin(), walk.frames.begin() + static_cast<std::ptrdiff_t>(walk.count)}});
  } catch (const std::bad_alloc&) {
    all.numbers.erase(place);
    throw;
  }
  return {&all.stacks.back(), number};
}

std::vector<NamedFrame> marked_functions_at(std::uintptr_t address, const GantryCode& code) {
  const CodeOwner elsewhere = code.is_known() ? CodeOwner::program : CodeOwner::unknown;
  std::vector<NamedFrame> functions = functions_at(address);
  mark_internal(functions, code.all.contains(address) ? CodeOwner::gantry : elsewhere);
  return functions;
}

Frames call_site_with_name(const StoredStack& stack, const GantryCode& code) {
  for (const std::uintptr_t address : stack.frames) {
    std::vector<NamedFrame> functions = marked_functions_at(address, code);
    const bool is_last = address == stack.frames.back();
    for (NamedFrame& function : functions) {
      if (function.frame.is_internal && !(is_last && &function == &functions.back())) continue;
      return std::vector{std::move(function.frame)};
    }
  }
  return {};
}

// Walks begin in this folder, and blocks in the allocator.
bool is_of_allocator(std::string_view symbol) {
  return is_in_namespace(symbol, "gantry::memory") || is_in_namespace(symbol, "gantry::stacks");
}

Frames frames_with_names(const StoredStack& stack) {
  const GantryCode& code = refresh_gantry_code();
  if (stack.depth == StackDepth::call_site) return call_site_with_name(stack, code);
  std::vector<Frame> result;
  const bool names_decide = code.memory.empty();
  for (const std::uintptr_t address : stack.frames) {
    std::vector<NamedFrame> functions = marked_functions_at(address, code);
    for (std::size_t i = 0; i < functions.size(); ++i) {
      // Functions of the allocator that were inlined into the caller are the allocator's, too.
      const bool may_skip = names_decide || i + 1 < functions.size();
      if (result.empty() && may_skip && is_of_allocator(functions[i].symbol)) {
        continue;
      }
      result.push_back(std::move(functions[i].frame));
    }
  }
  return result;
}

}  // namespace

void prepare_call_sites() {
  static_cast<void>(refresh_gantry_code());
  static_cast<void>(intern_call_stack(StackDepth::full));
}

std::uint32_t intern_call_stack(StackDepth depth, std::size_t frames) noexcept {
  try {
    const GantryCode& code = gantry_code();
    Walk walk;
    walk.skip = depth == StackDepth::full ? &code.memory : &code.all;
    walk.uncounted = &code.program;
    if (depth == StackDepth::call_site && code.is_known()) walk.max_counted = frames;
    _Unwind_Backtrace(visit, &walk);
    if (walk.count == 0) return 0;
    const std::uint64_t hash = hash_of(walk);
    KnownStacks* const own = own_known_stacks();
    if (own == nullptr) return find_or_add(hash, depth, walk).number;
    Known& known = (*own)[hash % kKnownPerThread];
    if (known.stack == nullptr || !known.stack->is(hash, depth, walk)) {
      known = find_or_add(hash, depth, walk);
    }
    return known.number;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

Frames frames_of(std::uint32_t call_site) {
  if (call_site == 0) return {};
  StackTable& all = table();
  const StoredStack* stack = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    if (call_site >= all.stacks.size()) return {};
    stack = &all.stacks[call_site];
  }
  const std::lock_guard lock(all.names_mutex);
  const auto known = all.named.find(call_site);
  if (known != all.named.end()) return known->second;
  return all.named.emplace(call_site, frames_with_names(*stack)).first->second;
}

std::string name_of_call_site(std::uint32_t number) {
  const Frames frames = frames_of(number);
  const Frame* const frame = frames.call_site();
  return frame == nullptr ? std::string()
                          : fmt::format("{}:{} {}", frame->filename, frame->line, frame->name);
}

}  // namespace gantry::stacks
