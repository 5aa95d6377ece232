#include "memory/oom/oom_report.hpp"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "core/callbacks.hpp"
#include "core/exception_text.hpp"
#include "core/rounding.hpp"
#include "core/text/byte_count.hpp"
#include "memory/oom/direct_memory.hpp"
#include "memory/policy/active_pool.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {
namespace {

Callbacks<OomObserver>& oom_observers() {
  static auto& instance = *new Callbacks<OomObserver>();
  return instance;
}

std::atomic<std::int64_t>& rejections(int device) {
  static auto& counts = *new PerDevice<std::atomic<std::int64_t>>();
  return counts.get(device, [](int /*device*/) { return new std::atomic<std::int64_t>(0); });
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

// Memory that is not allocated and cannot serve the request, and the largest call sites.
std::string still_used(const OomReport& report) {
  std::string text;
  if (report.pending > 0) {
    text += fmt::format(" {} is freed but still used: {}.", format_bytes(report.pending),
                        listed(report.pending_by_stream, "by stream"));
  }
  if (report.limbo > 0) {
    text += fmt::format(" {} is freed here but other processes have it imported: {}.",
                        format_bytes(report.limbo), listed(report.limbo_by_process, "by process"));
  }
  if (report.stream_free > 0) {
    text += fmt::format(" {} is free, but only for streams that still use it.",
                        format_bytes(report.stream_free));
  }
  if (report.private_pools > 0) {
    text += fmt::format(
        " {} is reserved by private pools without use_on_oom and by graphs, {} of it unallocated.",
        format_bytes(report.private_pools), format_bytes(report.private_free));
  }
  if (report.released > 0) {
    text += fmt::format(" {} of live blocks is in pools that released their physical memory.",
                        format_bytes(report.released));
  }
  if (!report.top_call_sites.empty()) {
    text += fmt::format(" Most is used by: {}.", listed(report.top_call_sites, "from"));
  }
  return text;
}

// Live blocks that have memory.
std::int64_t allocated_memory(const OomReport& report) {
  return report.allocated - report.released;
}

// Free memory that the request may use, in whatever pieces.
std::int64_t usable_memory(const OomReport& report) {
  return report.reserved - allocated_memory(report) - report.pending - report.limbo -
         report.private_free - report.stream_free;
}

std::string advice(const OomReport& report, bool may_split_less, std::string_view purpose) {
  const std::int64_t allocated = allocated_memory(report);
  const std::int64_t usable = usable_memory(report);
  std::int64_t direct = 0;
  for (const auto& [purpose, bytes] : report.direct_by_purpose) direct += bytes;
  const std::int64_t beside = report.total - report.free - report.reserved;
  const std::int64_t elsewhere = beside - direct;
  std::string text;
  if (report.limit < report.total && report.total - allocated >= report.requested) {
    text += " Raise the limit with memory::set_fraction or GANTRY_ALLOC_CONF=fraction:….";
  }
  if (usable > 0 && usable >= report.requested) {
    text += may_split_less ? " If reserved but unallocated memory is large try setting "
                             "GANTRY_ALLOC_CONF=max_split_size_mb:… to avoid fragmentation."
                           : " Reserved but unallocated memory is in pieces.";
  }
  if (direct > 0 && beside >= report.requested) {
    text += fmt::format(" gantry uses beside its allocator: {}.",
                        listed(report.direct_by_purpose, "for"));
  }
  if (elsewhere > 0 && beside >= report.requested) {
    text += fmt::format(" {} is used by other processes or outside of {}.", format_bytes(elsewhere),
                        direct > 0 ? "gantry" : "this allocator");
  }
  text += still_used(report);
  if (purpose == kCapturePurpose) {
    text +=
        " A capture does not wait for streams: synchronize or call memory::empty_cache() before "
        "the capture.";
  }
  if (report.requested > report.total && platform() == Platform::simulated) {
    text += " Set GANTRY_SIM_MEMORY for simulated devices with more memory.";
  }
  return text;
}

// Observers may allocate. An error of theirs is theirs: it is not observed.
void notify(int device, const OomReport& report) {
  static thread_local constinit bool is_notifying = false;
  if (std::exchange(is_notifying, true)) return;
  const NoActivePool scope;
  oom_observers().for_each([&](const OomObserver& observer) {
    try {
      observer(Device::cuda(device), report);
    } catch (...) {
      logging::warn("an out-of-memory observer failed: " + current_exception_text());
    }
  });
  is_notifying = false;
}

}  // namespace

OomReport report_of_driver(int device, std::size_t bytes) {
  const NativeMemoryInfo info = driver().memory_info(device);
  OomReport report;
  report.requested = signed_bytes(bytes);
  report.total = report.limit = signed_bytes(info.total);
  report.free = signed_bytes(info.free);
  return report;
}

std::string out_of_memory_text(int device, const OomReport& report, bool may_split_less,
                               std::string_view purpose) {
  const std::string allowed =
      report.limit < report.total ? fmt::format(" {} allowed;", format_bytes(report.limit)) : "";
  const std::int64_t allocated = allocated_memory(report);
  return fmt::format(
      "CUDA out of memory. Tried to allocate {}{}{}. GPU {} has a total capacity of {} of which {} "
      "is "
      "free.{} Of the allocated memory {} is allocated by gantry, and {} is reserved by gantry but "
      "unallocated.{}",
      format_bytes(report.requested), purpose.empty() ? "" : " for ", purpose, device,
      format_bytes(report.total), format_bytes(report.free), allowed, format_bytes(allocated),
      format_bytes(report.reserved - allocated), advice(report, may_split_less, purpose));
}

std::int64_t limit_rejections(int device) { return rejections(device); }

void throw_out_of_memory(int device, const OomReport& report, bool may_split_less,
                         std::string_view purpose) {
  const bool is_limited = report.limit > 0 && report.limit < report.total;
  if (is_limited && report.requested > report.limit - report.reserved) ++rejections(device);
  OomReport whole = report;
  whole.direct_by_purpose = direct_memory(device);
  notify(device, whole);
  throw OutOfMemoryError(out_of_memory_text(device, whole, may_split_less, purpose), whole,
                         Device::cuda(device).str());
}

void register_oom_observer(OomObserver observer) { oom_observers().add(std::move(observer)); }

}  // namespace gantry::memory
