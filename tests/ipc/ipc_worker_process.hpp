// A connection of a test to an ipc_worker.
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>

#include "tests/ipc/ipc_worker_reply.hpp"
#include "tests/support/pipe_process.hpp"

namespace gantry::testing {

/// A running ipc_worker; see ipc_worker.cpp for its commands. Each member sends one command.
class IpcWorker : public PipeProcess {
 public:
  IpcWorker(const std::string& memory, int device)
      : PipeProcess({std::string(GANTRY_TEST_PROGRAM_DIR) + "/ipc_worker", memory,
                     std::to_string(device)}) {}

  /// Returns the reply to `command`.
  WorkerReply request(const std::string& command) {
    write_line(command);
    return read_reply();
  }
  WorkerReply read_reply() { return parse_reply(read_line()); }

  /// Exports `count` blocks that are filled with `value`, `value` + 1, …; returns their handles.
  std::vector<std::string> export_blocks(int count, std::size_t bytes, int value) {
    return request("export " + std::to_string(count) + ' ' + std::to_string(bytes) + ' ' +
                   std::to_string(value))
        .handles;
  }
  WorkerReply free_blocks() { return request("free"); }
  WorkerReply collect() { return request("collect"); }
  WorkerReply import_blocks(const std::vector<std::string>& handles) {
    return request(command("import", handles));
  }
  WorkerReply map_blocks(const std::vector<std::string>& handles) {
    return request(command("map", handles));
  }
  WorkerReply drop_imports() { return request("drop"); }
  /// Limits the number of descriptors that it can open from now on, until lift_limit().
  WorkerReply limit_new_descriptors(int count) {
    return request("exhaust " + std::to_string(count));
  }
  WorkerReply lift_limit() { return request("lift"); }

  /// Returns the line "`word` HANDLE…".
  [[nodiscard]] static std::string command(const std::string& word,
                                           const std::vector<std::string>& handles) {
    std::string line = word;
    for (const std::string& handle : handles) line += ' ' + handle;
    return line;
  }
};

/// The reply of an import that found these bytes.
[[nodiscard]] inline WorkerReply imported(std::vector<int> values) {
  return {.status = "ok", .values = std::move(values)};
}

/// The reply to free, collect and drop of a worker that holds no memory.
[[nodiscard]] inline WorkerReply nothing_held() { return {.status = "ok"}; }

/// The reply to free of a worker whose blocks are all or partly in limbo.
[[nodiscard]] inline WorkerReply in_limbo(std::size_t bytes) {
  return {.status = "ok", .limbo_bytes = bytes};
}

}  // namespace gantry::testing
