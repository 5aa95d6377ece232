#include "machine/topology/node_pages.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <thread>
#include <vector>

namespace gantry::machine {
namespace {

// A part that one thread faults in before it takes the next one.
constexpr std::size_t kPartBytes = std::size_t{16} << 20;
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

bool fault_in_parallel(std::byte* data, std::size_t bytes, int threads) noexcept {
  const std::size_t parts = (bytes + kPartBytes - 1) / kPartBytes;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> complete{true};
  const auto work = [&] {
    for (std::size_t part = next++; part < parts && complete; part = next++) {
      const std::size_t begin = part * kPartBytes;
      if (!fault_in(data + begin, std::min(kPartBytes, bytes - begin))) complete = false;
    }
  };
  const auto wanted = std::min(parts, static_cast<std::size_t>(threads));
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

}  // namespace

int most_page_threads() noexcept {
  constexpr int kMaxThreads = 16;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

std::byte* map_node_pages(std::size_t bytes, int node, int threads) noexcept {
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const data = static_cast<std::byte*>(mapped);
  prefer_node(data, bytes, node);
  if (fault_in_parallel(data, bytes, threads)) return data;
  unmap_node_pages(data, bytes);
  return nullptr;
}

void unmap_node_pages(std::byte* data, std::size_t bytes) noexcept { ::munmap(data, bytes); }

}  // namespace gantry::machine
