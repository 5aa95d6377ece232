#include "tools/replay/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/policy/backend.hpp"

namespace gantry::replay {
namespace {

constexpr const char* kVariable = "GANTRY_ALLOC_CONF";

// The library's allocator, through its public face.
class LibraryBackend : public Backend {
 public:
  explicit LibraryBackend(Device device) : device_(device) {}

  memory::Allocator& allocator() override { return memory::allocator(device_); }
  std::uint64_t allocated_bytes() override { return memory::allocated(device_); }
  std::uint64_t reserved_bytes() override { return memory::reserved(device_); }
  std::uint64_t peak_reserved_bytes() override { return memory::max_reserved(device_); }
  void reset_peak() override { memory::reset_peak_stats(device_); }
  void set_limit(std::uint64_t bytes) override {
    const auto total = static_cast<double>(memory::mem_get_info(device_).total);
    memory::set_fraction(std::min(1.0, static_cast<double>(bytes) / total), device_);
  }

 private:
  Device device_;
};

// An allocator whose memory is exactly what is live.
class ExactBackend : public Backend, public memory::Allocator {
 public:
  explicit ExactBackend(Device device) : device_(device) {}

  memory::Allocator& allocator() override { return *this; }
  std::uint64_t allocated_bytes() override { return live_; }
  std::uint64_t reserved_bytes() override { return live_; }
  std::uint64_t peak_reserved_bytes() override { return peak_; }
  void reset_peak() override { peak_ = live_; }
  void set_limit(std::uint64_t bytes) override { limit_ = bytes; }

  memory::Block allocate(const Stream&, std::size_t bytes, std::size_t /*alignment*/) override {
    void* data = bytes <= limit_ - live_ ? take(bytes) : nullptr;
    if (data == nullptr) {
      OomReport breakdown;
      breakdown.requested = static_cast<std::int64_t>(bytes);
      breakdown.allocated = breakdown.reserved = static_cast<std::int64_t>(live_);
      throw OutOfMemoryError(fmt::format("{}: out of memory", name()), breakdown, device_.str());
    }
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return {.data = data, .bytes = bytes, .device = device_, .allocator = this, .handle = nullptr};
  }
  void deallocate(memory::Block& block) noexcept override {
    give_back(block.data);
    live_ -= block.bytes;
    block = {};
  }
  void record_stream(const memory::Block&, const Stream&) override {}
  void empty_cache(Device) override {}

 protected:
  /// nullptr if there is no memory left.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* data) noexcept = 0;
  Device device_;

 private:
  // Replays have one thread at work at a time.
  std::uint64_t live_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
};

class DriverBackend final : public ExactBackend {
 public:
  using ExactBackend::ExactBackend;
  std::string name() const override { return "cuda"; }

 protected:
  void* take(std::size_t bytes) override { return driver().allocate(device_.index, bytes); }
  void give_back(void* data) noexcept override {
    try {
      driver().deallocate(device_.index, data);
    } catch (const Error& error) {
      fmt::print(stderr, "gantry-replay: {}\n", error.what());
    }
  }
};

class BumpBackend final : public ExactBackend {
 public:
  using ExactBackend::ExactBackend;
  std::string name() const override { return "bump"; }

 protected:
  void* take(std::size_t bytes) override {
    next_ += (bytes + 511) / 512 * 512;
    return reinterpret_cast<void*>(next_);
  }
  void give_back(void*) noexcept override {}

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

}  // namespace

const std::vector<std::string>& backend_names() {
  static const auto& names = *new std::vector<std::string>([] {
    std::vector<std::string> all;
    for (const memory::Backend& backend : memory::kBackends) all.emplace_back(backend.name);
    all.insert(all.end(), {"cuda", "bump"});
    return all;
  }());
  return names;
}

std::string with_backend(std::string_view configuration, std::string_view name) {
  std::string result = fmt::format("backend:{}", name);
  while (!configuration.empty()) {
    const std::size_t comma = std::min(configuration.find(','), configuration.size());
    const std::string_view entry = configuration.substr(0, comma);
    if (!entry.empty() && !entry.starts_with("backend:")) result += fmt::format(",{}", entry);
    configuration.remove_prefix(std::min(comma + 1, configuration.size()));
  }
  return result;
}

std::unique_ptr<Backend> make_backend(std::string_view name, Device device) {
  if (name == "cuda") return std::make_unique<DriverBackend>(device);
  if (name == "bump") return std::make_unique<BumpBackend>(device);
  const auto& names = backend_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw InvalidArgument(
        fmt::format("--backend: expected one of {}, but got '{}'", fmt::join(names, ", "), name));
  }
  ::setenv(kVariable, with_backend(env::get(kVariable).value_or(""), name).c_str(), 1);
  const std::string used = memory::allocator_backend();
  if (used != name) {
    throw InvalidArgument(fmt::format(
        "--backend: expected {}, but this process uses the backend {} already", name, used));
  }
  return std::make_unique<LibraryBackend>(device);
}

}  // namespace gantry::replay
