// An ipc_worker that a test talks with.
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>

#include "tests/support/pipe_process.hpp"

namespace gantry::testing {

/// See ipc_worker.cpp for the commands.
class IpcWorker : public PipeProcess {
 public:
  IpcWorker(const std::string& memory, int device)
      : PipeProcess({std::string(GANTRY_TEST_PROGRAM_DIR) + "/ipc_worker", memory,
                     std::to_string(device)}) {}

  /// The answer to `command`; empty if the process is gone.
  std::string ask(const std::string& command) {
    write_line(command);
    return read_line();
  }
  /// Exports blocks and returns their handles.
  std::vector<std::string> export_blocks(int count, std::size_t bytes, int value) {
    return words(ask("export " + std::to_string(count) + ' ' + std::to_string(bytes) + ' ' +
                     std::to_string(value)));
  }

  [[nodiscard]] static std::vector<std::string> words(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> result;
    for (std::string word; stream >> word;) result.push_back(word);
    return result;
  }
  [[nodiscard]] static std::string import_command(const std::vector<std::string>& handles) {
    std::string command = "import";
    for (const std::string& handle : handles) command += ' ' + handle;
    return command;
  }
};

}  // namespace gantry::testing
