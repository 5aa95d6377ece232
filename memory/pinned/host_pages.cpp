#include "memory/pinned/host_pages.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <new>
#include <thread>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "memory/policy/config.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {
namespace {

constexpr std::size_t kAlignment = 64;
// From this size on several threads are faster than the driver's one.
constexpr std::size_t kParallelBytes = std::size_t{64} << 20;
// What one thread faults in before it takes the next part.
constexpr std::size_t kPartBytes = std::size_t{16} << 20;
constexpr int kMaxThreads = 16;
// MADV_POPULATE_WRITE of Linux 5.14, which older headers do not name.
constexpr int kPopulateWrite = 23;

void prefer_node(void* data, std::size_t bytes, int node) noexcept {
  constexpr int kBits = static_cast<int>(sizeof(unsigned long) * CHAR_BIT);
  std::array<unsigned long, 16> mask{};
  if (node < 0 || node >= kBits * static_cast<int>(mask.size())) return;
  mask[static_cast<std::size_t>(node / kBits)] = 1UL << static_cast<unsigned>(node % kBits);
  // A failure is ignored: containers may forbid the call.
  static_cast<void>(
      ::syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1, 0));
}

// False if the system has not enough pages.
bool fault_in(std::byte* data, std::size_t bytes) noexcept {
  if (::madvise(data, bytes, kPopulateWrite) == 0) return true;
  if (errno != EINVAL) return false;
  // Linux before 5.14.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    *static_cast<volatile std::byte*>(data + at) = std::byte{0};
  }
  return true;
}

int most_threads() {
  if (const int chosen = alloc_config().pinned_threads; chosen != 0) return chosen;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

bool fault_in_parallel(std::byte* data, std::size_t bytes) {
  const std::size_t parts = (bytes + kPartBytes - 1) / kPartBytes;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> complete{true};
  const auto work = [&] {
    for (std::size_t part = next++; part < parts && complete; part = next++) {
      const std::size_t begin = part * kPartBytes;
      if (!fault_in(data + begin, std::min(kPartBytes, bytes - begin))) complete = false;
    }
  };
  const auto wanted = std::min(parts, static_cast<std::size_t>(most_threads()));
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(wanted);
    while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
  } catch (...) {  // fewer threads do it, too
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return complete;
}

HostPages allocate_registered(std::size_t bytes, int node) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  HostPages pages{
      .data = nullptr, .bytes = round_up(bytes, page), .source = HostSource::registered};
  void* data =
      ::mmap(nullptr, pages.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return pages;
  try {
    prefer_node(data, pages.bytes, node);
    if (fault_in_parallel(static_cast<std::byte*>(data), pages.bytes) &&
        driver().register_host(data, pages.bytes)) {
      pages.data = static_cast<std::byte*>(data);
      return pages;
    }
  } catch (...) {
    ::munmap(data, pages.bytes);
    throw;
  }
  ::munmap(data, pages.bytes);
  return pages;
}

}  // namespace

HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes) {
  switch (platform()) {
    case Platform::none:
      return {.source = HostSource::ordinary};
    case Platform::simulated:
    case Platform::cuda:
      break;
  }
  const bool worth_it =
      platform() == Platform::cuda && (bytes >= kParallelBytes || (several_nodes && node >= 0));
  const bool registers = alloc_config().pinned_register.value_or(worth_it);
  return {.source = registers ? HostSource::registered : HostSource::driver, .node = node};
}

bool registers_host_pages() {
  if (platform() == Platform::none) return false;
  return alloc_config().pinned_register.value_or(platform() == Platform::cuda);
}

int host_register_threads() { return registers_host_pages() ? most_threads() : 1; }

HostPages allocate_host_pages(std::size_t bytes, HostPlacement placement) {
  HostPages pages{.data = nullptr, .bytes = bytes, .source = placement.source};
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) return pages;
  switch (placement.source) {
    case HostSource::ordinary:
      pages.data = static_cast<std::byte*>(
          ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow));
      break;
    case HostSource::driver:
      pages.data = static_cast<std::byte*>(driver().allocate_pinned(bytes));
      break;
    case HostSource::registered:
      return allocate_registered(bytes, placement.node);
  }
  return pages;
}

void release_host_pages(const HostPages& pages) {
  switch (pages.source) {
    case HostSource::ordinary:
      ::operator delete (pages.data, std::align_val_t{kAlignment});
      return;
    case HostSource::driver:
      driver().deallocate_pinned(pages.data);
      return;
    case HostSource::registered:
      driver().unregister_host(pages.data);
      ::munmap(pages.data, pages.bytes);
      return;
  }
}

}  // namespace gantry::memory
