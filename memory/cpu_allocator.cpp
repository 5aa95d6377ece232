#include <gantry/memory/cpu_allocator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <gantry/core/error.hpp>

#include "memory/alignment.hpp"
#include "memory/oom_report.hpp"

namespace gantry::memory {
namespace {

class CpuAllocator final : public Allocator {
 public:
  [[nodiscard]] Block allocate(const Stream& /*stream*/, std::size_t bytes,
                               std::size_t alignment) override {
    return allocate_cpu(bytes, alignment);
  }
  void deallocate(Block& block) noexcept override {
    std::free(block.data);
    block = {};
  }
  void record_stream(const Block& /*block*/, const Stream& /*stream*/) override {}
  void empty_cache(Device /*device*/) override {}
  [[nodiscard]] std::string name() const override { return "cpu"; }
};

}  // namespace

Allocator& cpu_allocator() {
  static auto& allocator = *new CpuAllocator();
  return allocator;
}

Block allocate_cpu(std::size_t bytes, std::size_t alignment) {
  check_alignment(alignment);
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = Device::cpu(),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  const std::size_t used = std::max(alignment, kCpuAlignment);
  // AddressSanitizer stops the program at sizes that no process can have.
  const bool possible = add_saturated(bytes, used) <= static_cast<std::size_t>(PTRDIFF_MAX);
  if (!possible || ::posix_memalign(&block.data, used, bytes) != 0) {
    block.data = nullptr;
    OomReport report;
    report.requested = signed_bytes(bytes);
    throw OutOfMemoryError(
        fmt::format("CPU out of memory. Tried to allocate {}.", format_bytes(report.requested)),
        report, "cpu");
  }
  block.allocator = &cpu_allocator();
  return block;
}

}  // namespace gantry::memory
