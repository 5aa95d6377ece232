#include <gantry/memory/cpu_allocator.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <new>

#include <gantry/core/error.hpp>

#include "memory/oom_report.hpp"

namespace gantry::memory {
namespace {

class CpuAllocator final : public Allocator {
 public:
  [[nodiscard]] Block allocate(std::size_t bytes, Stream /*stream*/) override {
    return allocate_cpu(bytes);
  }
  void deallocate(Block& block) noexcept override {
    ::operator delete (block.data, std::align_val_t{kCpuAlignment});
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

Block allocate_cpu(std::size_t bytes) {
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = Device::cpu(),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  block.data = bytes > static_cast<std::size_t>(PTRDIFF_MAX)
                   ? nullptr
                   : ::operator new (bytes, std::align_val_t{kCpuAlignment}, std::nothrow);
  if (block.data == nullptr) {
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
