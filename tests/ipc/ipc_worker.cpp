// A process that shares memory as its standard input says. It replies to every command with one
// line, a WorkerReply; the fields that a command sets stand behind it.
//   ipc_worker heap|chunks DEVICE
//   export COUNT BYTES VALUE  allocates and exports, fills with VALUE, VALUE + 1, …: handles
//   free                      frees the exported blocks: limbo_bytes
//   collect                   limbo_bytes, live_bytes
//   limbo PID                 limbo_bytes of that process
//   import HANDLE…            imports on DEVICE and compares each block's bytes: values
//   map HANDLE…               imports on DEVICE without reading
//   drop                      drops the imports: imports, pending_releases, mapped_bytes
//   fork                      leaves a child with copies of all descriptors: child
//   hold COUNT                exports a block on each of COUNT busy streams: handles
//   release                   lets these streams continue
//   limit COUNT               sets its limit of descriptors to COUNT
//   exhaust COUNT             lets it open only COUNT more descriptors
//   lift                      ends exhaust
//   exit                      ends at once, without freeing anything
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "ipc/exporter.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_reply.hpp"
#include "tests/ipc/vmm_source.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/stream_hold.hpp"

namespace {

using gantry::Device;
using gantry::Stream;
using gantry::testing::WorkerReply;
namespace memory = gantry::memory;

class Worker {
 public:
  Worker(bool chunks, int device) : device_(Device::cuda(device)) {
    if (chunks) source_ = std::make_unique<gantry::testing::VmmSource>(device, 8);
  }

  WorkerReply run(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    try {
      if (command == "export") return export_blocks(words);
      if (command == "free") return free_blocks();
      if (command == "collect") return collect();
      if (command == "limbo") return limbo_of(words);
      if (command == "import") return import_blocks(words);
      if (command == "map") return map_blocks(words);
      if (command == "drop") return drop();
      if (command == "fork") return fork_child();
      if (command == "hold") return hold_blocks(words);
      if (command == "release") return release_blocks();
      if (command == "limit") return limit(words);
      if (command == "exhaust") return exhaust(words);
      if (command == "lift") return lift();
    } catch (const gantry::PeerLostError&) {
      return {.status = "lost"};
    } catch (const std::exception& error) {
      const std::string text = error.what();
      if (text.find("but got a freed one") != std::string::npos) return {.status = "freed"};
      return {.status = "error", .error = text};
    }
    return {.status = "error", .error = "unknown command " + command};
  }

 private:
  WorkerReply export_blocks(std::istringstream& words) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    int value = 0;
    words >> count >> bytes >> value;
    const Stream stream = Stream::current(device_);
    WorkerReply reply{.status = "ok"};
    for (std::size_t i = 0; i < count; ++i) {
      blocks_.emplace_back(source_ != nullptr ? source_->allocate(stream, bytes)
                                              : memory::allocate(stream, bytes).release());
      const auto byte = static_cast<std::uint8_t>(value + static_cast<int>(i));
      gantry::driver().fill(blocks_.back().data(), byte, bytes, stream.native());
      reply.handles.push_back(gantry::testing::to_text(memory::export_ipc(blocks_.back().block())));
    }
    return reply;
  }

  WorkerReply free_blocks() {
    blocks_.clear();
    return {.status = "ok", .limbo_bytes = memory::ipc_stats(device_).limbo_bytes};
  }

  WorkerReply collect() {
    memory::ipc_collect();
    memory::IpcExporter::instance().verify();
    const std::size_t live =
        source_ != nullptr
            ? source_->live_bytes()
            : static_cast<std::size_t>(memory::stats(device_).active_bytes.all.current);
    return {
        .status = "ok", .limbo_bytes = memory::ipc_stats(device_).limbo_bytes, .live_bytes = live};
  }

  WorkerReply limbo_of(std::istringstream& words) {
    int pid = 0;
    words >> pid;
    return {.status = "ok", .limbo_bytes = memory::ipc_stats(device_).limbo_by_consumer[pid]};
  }

  WorkerReply import_blocks(std::istringstream& words) {
    const Stream stream = Stream::current(device_);
    WorkerReply reply{.status = "ok"};
    for (std::string text; words >> text;) {
      const auto block = memory::import_ipc(gantry::testing::from_text(text), device_);
      imports_.push_back(block);
      const memory::Buffer host = memory::pinned(block.bytes());
      gantry::driver().copy(host.data(), block.data(), block.bytes(), stream.native());
      stream.synchronize();
      const auto* bytes = static_cast<const std::uint8_t*>(host.data());
      if (std::any_of(bytes, bytes + block.bytes(), [&](auto b) { return b != bytes[0]; })) {
        return {.status = "torn"};
      }
      reply.values.push_back(bytes[0]);
    }
    return reply;
  }

  WorkerReply map_blocks(std::istringstream& words) {
    for (std::string text; words >> text;) {
      imports_.push_back(memory::import_ipc(gantry::testing::from_text(text), device_));
    }
    return {.status = "ok"};
  }

  WorkerReply drop() {
    imports_.clear();
    Stream::current(device_).synchronize();
    memory::ipc_collect();
    const memory::IpcStats stats = memory::ipc_stats(device_);
    return {.status = "ok",
            .imports = stats.imports,
            .pending_releases = stats.pending_releases,
            .mapped_bytes = stats.mapped_bytes};
  }

  WorkerReply hold_blocks(std::istringstream& words) {
    std::size_t count = 0;
    words >> count;
    WorkerReply reply{.status = "ok"};
    for (std::size_t i = 0; i < count; ++i) {
      const Stream stream = Stream::from_pool(device_);
      holds_.push_back(std::make_unique<gantry::testing::StreamHold>(stream));
      const gantry::StreamGuard guard(stream);
      blocks_.emplace_back(memory::allocate(stream, 4096).release());
      reply.handles.push_back(gantry::testing::to_text(memory::export_ipc(blocks_.back().block())));
    }
    return reply;
  }

  WorkerReply release_blocks() {
    holds_.clear();
    return {.status = "ok"};
  }

  static WorkerReply limit(std::istringstream& words) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    words >> limit.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &limit);
    return {.status = "ok"};
  }

  WorkerReply exhaust(std::istringstream& words) {
    int free = 0;
    words >> free;
    exhausted_ = std::make_unique<gantry::testing::DescriptorLimit>(free);
    return {.status = "ok"};
  }

  WorkerReply lift() {
    exhausted_.reset();
    return {.status = "ok"};
  }

  static WorkerReply fork_child() {
    const pid_t child = fork();
    if (child == 0) {
      close(STDIN_FILENO);
      close(STDOUT_FILENO);
      alarm(30);  // in case the test does not kill it
      pause();
      _exit(0);
    }
    return {.status = "ok", .child = child};
  }

  const Device device_;
  std::unique_ptr<gantry::testing::VmmSource> source_;
  std::vector<memory::Buffer> blocks_;
  std::vector<memory::ImportedBlock> imports_;
  std::vector<std::unique_ptr<gantry::testing::StreamHold>> holds_;
  std::unique_ptr<gantry::testing::DescriptorLimit> exhausted_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  // Not destroyed: the process ends without freeing anything.
  static auto& worker = *new Worker(std::string(argv[1]) == "chunks", std::atoi(argv[2]));
  for (std::string line; std::getline(std::cin, line) && line != "exit";) {
    std::cout << worker.run(line) << std::endl;
  }
}
