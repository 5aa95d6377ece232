// A process that shares memory as its standard input says; every command has one line of answer.
//   ipc_worker heap|chunks DEVICE
//   export COUNT BYTES VALUE  allocates, fills with VALUE, VALUE + 1, …; prints the handles
//   free                      frees what was exported; prints the bytes in limbo
//   collect                   prints the bytes in limbo, and those that are not free
//   limbo PID                 prints the bytes in limbo for that process
//   import HANDLE…            imports on DEVICE and looks at the content; prints the first byte of
//                             each, "freed", "lost" or the error
//   map HANDLE…               imports on DEVICE and does not look; prints "mapped"
//   drop                      drops the imports; prints imports, releases to come, mapped bytes
//   fork                      leaves a child with copies of all descriptors; prints its pid
//   hold COUNT                exports a block on each of COUNT busy streams; prints the handles
//   release                   lets these streams go on; prints "released"
//   limit COUNT               from now on it may have COUNT descriptors; prints "limited"
//   exhaust COUNT             from now on it may open COUNT descriptors; prints "exhausted"
//   relax                     ends that; prints "relaxed"
//   exit                      ends at once, with all that it holds
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
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/ipc.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/memory/ipc_text.hpp"
#include "tests/memory/vmm_source.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/stream_hold.hpp"

namespace {

using gantry::Device;
using gantry::Stream;
namespace memory = gantry::memory;

class Worker {
 public:
  Worker(bool chunks, int device) : device_(Device::cuda(device)) {
    if (chunks) source_ = std::make_unique<gantry::testing::VmmSource>(device, 8);
  }

  std::string run(const std::string& line) {
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
      if (command == "relax") return relax();
    } catch (const gantry::PeerLostError&) {
      return "lost";
    } catch (const std::exception& error) {
      const std::string text = error.what();
      return text.find("one that was freed") != std::string::npos ? "freed" : "error: " + text;
    }
    return "unknown command " + command;
  }

 private:
  std::string export_blocks(std::istringstream& words) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    int value = 0;
    words >> count >> bytes >> value;
    const Stream stream = Stream::current(device_);
    std::string handles;
    for (std::size_t i = 0; i < count; ++i) {
      blocks_.emplace_back(source_ != nullptr ? source_->allocate(bytes, stream)
                                              : memory::allocate(bytes, stream).release());
      const auto byte = static_cast<std::uint8_t>(value + static_cast<int>(i));
      gantry::driver().fill(blocks_.back().data(), byte, bytes, stream.native());
      handles += gantry::testing::to_text(memory::export_ipc(blocks_.back().block())) + ' ';
    }
    return handles;
  }

  std::string free_blocks() {
    blocks_.clear();
    return std::to_string(memory::ipc_stats(device_).limbo_bytes);
  }

  std::string collect() {
    memory::ipc_collect();
    const std::size_t live =
        source_ != nullptr
            ? source_->live_bytes()
            : static_cast<std::size_t>(memory::stats(device_).active_bytes.all.current);
    return std::to_string(memory::ipc_stats(device_).limbo_bytes) + ' ' + std::to_string(live);
  }

  std::string limbo_of(std::istringstream& words) {
    int pid = 0;
    words >> pid;
    return std::to_string(memory::ipc_stats(device_).limbo_by_consumer[pid]);
  }

  std::string import_blocks(std::istringstream& words) {
    const Stream stream = Stream::current(device_);
    std::string values;
    for (std::string text; words >> text;) {
      const auto block = memory::import_ipc(gantry::testing::from_text(text), device_);
      imports_.push_back(block);
      const memory::Buffer host = memory::pinned(block.bytes());
      gantry::driver().copy(host.data(), block.data(), block.bytes(), stream.native());
      stream.synchronize();
      const auto* bytes = static_cast<const std::uint8_t*>(host.data());
      if (std::any_of(bytes, bytes + block.bytes(), [&](auto b) { return b != bytes[0]; })) {
        return "torn";
      }
      values += std::to_string(bytes[0]) + ' ';
    }
    return values;
  }

  std::string map_blocks(std::istringstream& words) {
    for (std::string text; words >> text;) {
      imports_.push_back(memory::import_ipc(gantry::testing::from_text(text), device_));
    }
    return "mapped";
  }

  std::string drop() {
    imports_.clear();
    Stream::current(device_).synchronize();
    memory::ipc_collect();
    const memory::IpcStats stats = memory::ipc_stats(device_);
    return std::to_string(stats.imports) + ' ' + std::to_string(stats.pending_releases) + ' ' +
           std::to_string(stats.mapped_bytes);
  }

  std::string hold_blocks(std::istringstream& words) {
    std::size_t count = 0;
    words >> count;
    std::string handles;
    for (std::size_t i = 0; i < count; ++i) {
      const Stream stream = Stream::from_pool(device_);
      holds_.push_back(std::make_unique<gantry::testing::StreamHold>(stream));
      const gantry::StreamGuard guard(stream);
      blocks_.emplace_back(memory::allocate(4096, stream).release());
      handles += gantry::testing::to_text(memory::export_ipc(blocks_.back().block())) + ' ';
    }
    return handles;
  }

  std::string release_blocks() {
    holds_.clear();
    return "released";
  }

  static std::string limit(std::istringstream& words) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    words >> limit.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &limit);
    return "limited";
  }

  std::string exhaust(std::istringstream& words) {
    int free = 0;
    words >> free;
    exhausted_ = std::make_unique<gantry::testing::DescriptorLimit>(free);
    return "exhausted";
  }

  std::string relax() {
    exhausted_.reset();
    return "relaxed";
  }

  static std::string fork_child() {
    const pid_t child = fork();
    if (child == 0) {
      close(STDIN_FILENO);
      close(STDOUT_FILENO);
      alarm(30);  // should the test forget it
      pause();
      _exit(0);
    }
    return std::to_string(child);
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
  // Not destroyed: the process ends with all that it holds.
  static auto& worker = *new Worker(std::string(argv[1]) == "chunks", std::atoi(argv[2]));
  for (std::string line; std::getline(std::cin, line) && line != "exit";) {
    std::cout << worker.run(line) << std::endl;
  }
}
