// The reply of an ipc_worker, with the line that carries it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace gantry::testing {

/// The reply to one command. A command sets the fields that its description in ipc_worker.cpp
/// names.
struct WorkerReply {
  /// "ok"; "freed" or "lost" for an import that failed so; "torn" for an imported block whose bytes
  /// differ; "error"; empty if the worker has ended.
  std::string status{};
  std::vector<int> values{};           ///< the first byte of each imported block
  std::vector<std::string> handles{};  ///< as to_text() gives them
  std::size_t imports = 0;
  std::size_t pending_releases = 0;
  std::size_t mapped_bytes = 0;
  std::size_t limbo_bytes = 0;
  std::size_t live_bytes = 0;  ///< of blocks that are live or in limbo
  int child = 0;               ///< a process
  std::string error{};         ///< the text of an error

  friend bool operator==(const WorkerReply&, const WorkerReply&) = default;
};

/// Writes a reply as one line: the status, then "name=value" for each field that is not zero.
inline std::ostream& operator<<(std::ostream& out, const WorkerReply& reply) {
  out << reply.status;
  for (const int value : reply.values) out << " value=" << value;
  for (const std::string& handle : reply.handles) out << " handle=" << handle;
  const auto number = [&](const char* name, std::size_t value) {
    if (value != 0) out << ' ' << name << '=' << value;
  };
  number("imports", reply.imports);
  number("pending_releases", reply.pending_releases);
  number("mapped_bytes", reply.mapped_bytes);
  number("limbo_bytes", reply.limbo_bytes);
  number("live_bytes", reply.live_bytes);
  number("child", static_cast<std::size_t>(reply.child));
  if (!reply.error.empty()) out << " error=" << reply.error;  // last: it contains spaces
  return out;
}

/// Parses a line that operator<< wrote.
[[nodiscard]] inline WorkerReply parse_reply(const std::string& line) {
  WorkerReply reply;
  std::istringstream words(line);
  words >> reply.status;
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "value") reply.values.push_back(std::stoi(value));
    if (name == "handle") reply.handles.push_back(value);
    if (name == "imports") reply.imports = std::stoul(value);
    if (name == "pending_releases") reply.pending_releases = std::stoul(value);
    if (name == "mapped_bytes") reply.mapped_bytes = std::stoul(value);
    if (name == "limbo_bytes") reply.limbo_bytes = std::stoul(value);
    if (name == "live_bytes") reply.live_bytes = std::stoul(value);
    if (name == "child") reply.child = std::stoi(value);
    if (name == "error") {
      std::string rest;
      std::getline(words, rest);
      reply.error = value + rest;
    }
  }
  return reply;
}

}  // namespace gantry::testing
