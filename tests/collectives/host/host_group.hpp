// Ranks as threads of this process, linked by TCP, with arrays on simulated or real devices.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/host/transport.hpp"
#include "tests/collectives/scalar_reduce.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::testing {

/// One rank, on a thread of its own.
class HostRank {
 public:
  HostRank(int rank, int size, std::unique_ptr<Bootstrap> bootstrap,
           std::chrono::milliseconds timeout)
      : rank(rank),
        size(size),
        device(Device::cuda(rank % device_count())),
        stream(Stream::from_pool(device)),
        bootstrap(std::move(bootstrap)) {
    transport = make_host_transport_over_links({rank, size, device}, *this->bootstrap, timeout);
  }

  /// Device memory with these bytes.
  Tensor on_device(const Bytes& bytes) const {
    Tensor tensor =
        empty({static_cast<std::int64_t>(bytes.size())}, {.dtype = DType::u8, .device = device});
    if (!bytes.empty()) driver().copy(tensor.data(), bytes.data(), bytes.size(), stream.native());
    return tensor;
  }
  /// What the device memory holds behind all work of the stream.
  Bytes on_host(const Tensor& tensor) const {
    Bytes bytes(tensor.nbytes());
    if (!bytes.empty()) driver().copy(bytes.data(), tensor.data(), bytes.size(), stream.native());
    stream.synchronize();
    return bytes;
  }
  /// Runs one call and returns the bytes of its output.
  Bytes run(Descriptor what, const Bytes& in, std::size_t out_bytes,
            std::span<const std::int64_t> send_counts = {},
            std::span<const std::int64_t> recv_counts = {}) {
    return run_on(*transport, what, in, out_bytes, send_counts, recv_counts);
  }
  Bytes run_on(Transport& by, Descriptor what, const Bytes& in, std::size_t out_bytes,
               std::span<const std::int64_t> send_counts = {},
               std::span<const std::int64_t> recv_counts = {}) {
    what.call = ++calls;
    const Tensor input = on_device(in);
    const Tensor output = on_device(Bytes(out_bytes, std::byte{0x5a}));
    by.run({{what, input.data(), output.data(), send_counts, recv_counts}, size}, stream);
    return on_host(output);
  }

  int rank;
  int size;
  Device device;
  Stream stream;
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<HostTransport> transport;
  std::int64_t calls = 0;
};

/// Calls `fn` with every rank of a group, each on its own thread.
///
/// Throws: as rank_threads, for the first exception that `fn` threw. Then `on_failure`, if given,
/// is called once, before that rank leaves the group.
inline void host_ranks(int size, const std::function<void(HostRank&)>& fn,
                       std::chrono::milliseconds timeout = std::chrono::seconds(60),
                       const std::function<void()>& on_failure = {}) {
  std::once_flag failed;
  std::string first_failure;
  const auto call = [&](HostRank& self) {
    try {
      fn(self);
    } catch (const std::exception& error) {
      std::call_once(failed, [&] {
        first_failure = "rank " + std::to_string(self.rank) + ": " + error.what();
        if (on_failure) on_failure();
      });
      throw;
    }
  };
  auto bootstraps = make_local_bootstraps(size);
  try {
    rank_threads(
        size,
        [&](int rank) {
          HostRank self(rank, size, std::move(bootstraps[static_cast<std::size_t>(rank)]), timeout);
          // Arrays belong to the stream that uses them.
          const StreamGuard guard(self.stream);
          call(self);
        },
        std::chrono::seconds(240));
  } catch (const std::exception&) {
    // A rank that leaves fails the others, which may end before it.
    if (first_failure.empty()) throw;
    throw std::runtime_error(first_failure);
  }
}

}  // namespace gantry::testing
