#include "tools/check/bandwidth.hpp"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <span>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream.hpp>

#include "kernels/peers/multicast.hpp"
#include "machine/topology/binding.hpp"
#include "memory/driver_memory.hpp"
#include "memory/pinned/host_placement.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::check {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Simulated devices copy on a thread of the host: their numbers only show that the way works.
std::size_t bytes_of_a_copy() { return platform() == Platform::simulated ? kMiB : 64 * kMiB; }

bench::Repetitions repetitions() {
  if (platform() == Platform::simulated) {
    return {.calls = 2, .batches = 3, .warm_up = 1, .max_seconds = 0.02};
  }
  return {.calls = 10, .batches = 5, .warm_up = 3, .max_seconds = 0.2};
}

// Random bytes, other ones for every seed.
void write_pattern(std::span<std::byte> out, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + at, &word, std::min(sizeof word, out.size() - at));
  }
}

std::uint64_t count_differences(const std::byte* got, const std::byte* wanted, std::size_t bytes) {
  if (std::memcmp(got, wanted, bytes) == 0) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += got[i] != wanted[i] ? 1 : 0;
  return wrong;
}

std::optional<int> node_of(const void* data) {
  int node = -1;
  if (syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  return node;
}

}  // namespace

// The memory of one device, and what its source holds.
struct BandwidthBench::DeviceMemory {
  DeviceMemory(int device, std::size_t bytes)
      : stream(Stream::from_pool(Device::cuda(device))),
        source(device, bytes, "the source of measured copies"),
        target(device, bytes, "the target of measured copies"),
        pattern(memory::pinned(bytes)) {
    write_pattern({data(), bytes}, static_cast<std::uint64_t>(device) + 1);
    driver().copy(source.data(), data(), bytes, stream.native());
    stream.synchronize();
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(pattern.data()); }

  Stream stream;
  memory::DriverMemory source;
  memory::DriverMemory target;
  memory::Buffer pattern;
};

// Page-locked memory of a node.
struct BandwidthBench::HostMemory {
  HostMemory(std::size_t bytes, int node)
      : pages(allocate_host_pages(bytes, memory::host_placement(node, node >= 0, bytes))) {
    if (pages.data == nullptr) throw Error("the system has no memory left");
  }
  ~HostMemory() {
    try {
      release_host_pages(pages);
    } catch (const std::exception&) {
      // The process ends soon.
    }
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  HostPages pages;
};

BandwidthBench::BandwidthBench(std::vector<HostNode> nodes)
    : nodes_(std::move(nodes)),
      bytes_(bytes_of_a_copy()),
      devices_(static_cast<std::size_t>(device_count())) {}

BandwidthBench::~BandwidthBench() = default;

BandwidthBench::DeviceMemory& BandwidthBench::memory_of(int device) {
  auto& memory = devices_[static_cast<std::size_t>(device)];
  if (memory == nullptr) {
    const DeviceGuard guard(Device::cuda(device));
    memory = std::make_unique<DeviceMemory>(device, bytes_);
  }
  return *memory;
}

std::uint64_t BandwidthBench::wrong_bytes_of(const DeviceMemory& device, const std::byte* sent) {
  const memory::Buffer arrived = memory::pinned(bytes_);
  // The bytes of an earlier use of this memory are no arrival.
  std::memset(arrived.data(), 0, bytes_);
  driver().copy(arrived.data(), device.target.data(), bytes_, device.stream.native());
  device.stream.synchronize();
  return count_differences(static_cast<const std::byte*>(arrived.data()), sent, bytes_);
}

Bandwidth BandwidthBench::measure(const Measurement& measurement) {
  switch (measurement.route) {
    case Route::write:
    case Route::read:
      return measure_peer(measurement);
    case Route::to_device:
    case Route::to_host:
      break;
  }
  // The policies of a thread are its own. They hold for the pages that it faults in.
  Bandwidth result;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      result = measure_host(measurement);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return result;
}

Bandwidth BandwidthBench::measure_peer(const Measurement& measurement) {
  const DeviceGuard guard(Device::cuda(measurement.device));
  const bool writes = measurement.route == Route::write;
  DeviceMemory& own = memory_of(measurement.device);
  DeviceMemory& peer = memory_of(measurement.other);
  const DeviceMemory& from = writes ? own : peer;
  DeviceMemory& to = writes ? peer : own;
  const int from_device = writes ? measurement.device : measurement.other;
  const int to_device = writes ? measurement.other : measurement.device;

  Bandwidth result;
  result.bytes = bytes_;
  result.is_by_kernel =
      can_access_peer(Device::cuda(measurement.device), Device::cuda(measurement.other));
  if (result.is_by_kernel) {
    enable_peer_access(Device::cuda(measurement.device), Device::cuda(measurement.other));
  }
  // Bytes of an earlier measurement must not pass for bytes of this one.
  driver().fill(to.target.data(), 0, bytes_, to.stream.native());
  to.stream.synchronize();
  const CopyRegion region{.from = from.source.data(), .to = to.target.data(), .bytes = bytes_};
  const bench::TimedCalls timed{
      .begin = [] {},
      .launch =
          [&] {
            if (result.is_by_kernel) {
              kernels::multicast(kernels::Target::on(own.stream), std::span(&region, 1));
            } else {
              driver().copy_peer(region.to, to_device, region.from, from_device, bytes_,
                                 own.stream.native());
            }
          },
      .wait = [&] { own.stream.synchronize(); },
      .maximum = [](const std::vector<double>& values) { return values; }};
  result.bytes_per_second =
      static_cast<double>(bytes_) * 1e6 / bench::measure(timed, repetitions()).p50_us;
  result.wrong_bytes = wrong_bytes_of(to, from.data());
  return result;
}

Bandwidth BandwidthBench::measure_host(const Measurement& measurement) {
  const HostNode& node = nodes_[static_cast<std::size_t>(measurement.other)];
  const DeviceGuard guard(Device::cuda(measurement.device));
  DeviceMemory& device = memory_of(measurement.device);
  if (node.id >= 0) {
    const machine::BindingErrors errors = machine::Binding(node.cpus, node.id).apply();
    if (errors.cpus != 0) {
      throw Error(fmt::format("failed to use the CPUs {} of NUMA node {}: {}", node.cpus.str(),
                              node.id, std::strerror(errors.cpus)));
    }
  }
  const HostMemory host(bytes_, node.id);
  const bool to_device = measurement.route == Route::to_device;
  Bandwidth result;
  result.bytes = bytes_;
  if (to_device) {
    write_pattern({host.pages.data, bytes_}, ~static_cast<std::uint64_t>(measurement.other));
    driver().fill(device.target.data(), 0, bytes_, device.stream.native());
    device.stream.synchronize();
  } else {
    std::memset(host.pages.data, 0, bytes_);
  }
  result.host_node = node_of(host.pages.data);
  const bench::TimedCalls timed{
      .begin = [] {},
      .launch =
          [&] {
            if (to_device) {
              driver().copy(device.target.data(), host.pages.data, bytes_, device.stream.native());
            } else {
              driver().copy(host.pages.data, device.source.data(), bytes_, device.stream.native());
            }
          },
      .wait = [&] { device.stream.synchronize(); },
      .maximum = [](const std::vector<double>& values) { return values; }};
  result.bytes_per_second =
      static_cast<double>(bytes_) * 1e6 / bench::measure(timed, repetitions()).p50_us;
  if (to_device) {
    result.wrong_bytes = wrong_bytes_of(device, host.pages.data);
  } else {
    result.wrong_bytes = count_differences(host.pages.data, device.data(), bytes_);
  }
  return result;
}

}  // namespace gantry::check
