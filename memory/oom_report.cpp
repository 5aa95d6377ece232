#include "memory/oom_report.hpp"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/log.hpp>

namespace gantry::memory {
namespace {

using Observer = std::function<void(Device, const MemoryBreakdown&)>;

struct Observers {
  std::mutex mutex;
  std::vector<Observer> list;
};

Observers& observers() {
  static auto& instance = *new Observers();
  return instance;
}

// "2.00 MiB by stream 3, 1.00 MiB by stream 5"
template <class List>
std::string listed(const List& list, std::string_view what) {
  std::string text;
  for (const auto& [key, bytes] : list) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", format_bytes(bytes), what, key);
  }
  return text;
}

// Memory that nobody holds any more and that still cannot be given to the caller, and who holds
// most.
std::string still_used(const MemoryBreakdown& breakdown) {
  std::string text;
  if (breakdown.pending > 0) {
    text += fmt::format(" {} is freed but still used: {}.", format_bytes(breakdown.pending),
                        listed(breakdown.pending_by_stream, "by stream"));
  }
  if (breakdown.limbo > 0) {
    text += fmt::format(" {} is freed here but other processes have it imported: {}.",
                        format_bytes(breakdown.limbo),
                        listed(breakdown.limbo_by_process, "by process"));
  }
  if (breakdown.private_pools > 0) {
    text += fmt::format(" {} is reserved by private pools without use_on_oom.",
                        format_bytes(breakdown.private_pools));
  }
  if (breakdown.parked > 0) {
    text += fmt::format(" {} of parked pools is without memory.", format_bytes(breakdown.parked));
  }
  if (!breakdown.top_call_sites.empty()) {
    text += fmt::format(" Most is used by: {}.", listed(breakdown.top_call_sites, "from"));
  }
  return text;
}

// Live blocks that have memory.
std::int64_t allocated_memory(const MemoryBreakdown& breakdown) {
  return breakdown.allocated - breakdown.parked;
}

std::string advice(const MemoryBreakdown& breakdown, bool may_split_less) {
  const std::int64_t allocated = allocated_memory(breakdown);
  const std::int64_t unallocated = breakdown.reserved - allocated;
  const std::int64_t elsewhere = breakdown.total - breakdown.free - breakdown.reserved;
  std::string text;
  if (breakdown.limit < breakdown.total && breakdown.total - allocated >= breakdown.requested) {
    text += " Raise the limit with memory::set_fraction or GANTRY_ALLOC_CONF=fraction:….";
  }
  if (unallocated > 0 && unallocated >= breakdown.requested) {
    text += may_split_less
                ? " If reserved but unallocated memory is large try setting "
                  "GANTRY_ALLOC_CONF=max_split_size_mb:… to avoid fragmentation."
                : " Reserved but unallocated memory is in pieces, or belongs to other streams.";
  }
  if (elsewhere > 0 && elsewhere >= breakdown.requested) {
    text += fmt::format(" {} is used by other processes or outside of this allocator.",
                        format_bytes(elsewhere));
  }
  text += still_used(breakdown);
  if (breakdown.requested > breakdown.total && platform() == Platform::simulated) {
    text += " Set GANTRY_SIM_MEMORY for simulated devices with more memory.";
  }
  return text;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  constexpr std::int64_t kKib = 1024;
  const auto value = static_cast<double>(bytes);
  if (bytes < kKib) return fmt::format("{} bytes", bytes);
  if (bytes < kKib * kKib) return fmt::format("{:.2f} KiB", value / 1024);
  if (bytes < kKib * kKib * kKib) return fmt::format("{:.2f} MiB", value / (1024 * 1024));
  return fmt::format("{:.2f} GiB", value / (1024.0 * 1024 * 1024));
}

std::string out_of_memory_text(int device, const MemoryBreakdown& breakdown, bool may_split_less,
                               std::string_view purpose) {
  const std::string allowed = breakdown.limit < breakdown.total
                                  ? fmt::format(" {} allowed;", format_bytes(breakdown.limit))
                                  : "";
  const std::int64_t allocated = allocated_memory(breakdown);
  return fmt::format(
      "CUDA out of memory. Tried to allocate {}{}{}. GPU {} has a total capacity of {} of which {} "
      "is "
      "free.{} Of the allocated memory {} is allocated by gantry, and {} is reserved by gantry but "
      "unallocated.{}",
      format_bytes(breakdown.requested), purpose.empty() ? "" : " for ", purpose, device,
      format_bytes(breakdown.total), format_bytes(breakdown.free), allowed, format_bytes(allocated),
      format_bytes(breakdown.reserved - allocated), advice(breakdown, may_split_less));
}

void throw_out_of_memory(int device, const MemoryBreakdown& breakdown, bool may_split_less,
                         std::string_view purpose) {
  std::vector<Observer> list;
  {
    const std::lock_guard lock(observers().mutex);
    list = observers().list;
  }
  for (const Observer& observer : list) {
    try {
      observer(Device::cuda(device), breakdown);
    } catch (const std::exception& error) {
      logging::warn(fmt::format("an out-of-memory observer failed: {}", error.what()));
    }
  }
  throw OutOfMemoryError(out_of_memory_text(device, breakdown, may_split_less, purpose), breakdown,
                         Device::cuda(device).str());
}

void register_oom_observer(Observer observer) {
  const std::lock_guard lock(observers().mutex);
  observers().list.push_back(std::move(observer));
}

}  // namespace gantry::memory
