#include <gantry/memory/cpu_allocator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <gantry/core/error.hpp>

#include "core/text/byte_count.hpp"
#include "device/platform/poison.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {
namespace {

class CpuAllocator final : public Allocator {
 public:
  [[nodiscard]] Block allocate(const Stream& /*stream*/, std::size_t bytes,
                               std::size_t alignment) override {
    return allocate_cpu(bytes, alignment);
  }
  void deallocate(Block& block) noexcept override {
    std::free(block.handle);  // AddressSanitizer unpoisons the padding
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
  Block block{.bytes = bytes, .device = Device::cpu()};
  if (bytes == 0) return block;
  const std::size_t used = std::max(alignment, kCpuAlignment);
  // AddressSanitizer stops the program at sizes that no process can have.
  const bool possible = add_saturated(bytes, used) <= static_cast<std::size_t>(PTRDIFF_MAX);
  // posix_memalign takes ten times as long as malloc.
  if (possible) block.handle = std::malloc(bytes + used);
  if (block.handle == nullptr) {
    OomReport report;
    report.requested = signed_bytes(bytes);
    throw OutOfMemoryError(
        fmt::format("CPU out of memory. Tried to allocate {}.", format_bytes(report.requested)),
        report, "cpu");
  }
  block.data = align_up(block.handle, used);
  const std::size_t padding = padding_of(block.handle, used);
  poison_now(block.handle, padding);
  poison_now(static_cast<std::byte*>(block.data) + bytes, used - padding);
  block.allocator = &cpu_allocator();
  return block;
}

}  // namespace gantry::memory
