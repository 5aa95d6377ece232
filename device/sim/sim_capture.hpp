// Stream capture: tasks are collected instead of run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/sim/sim_stream.hpp"

namespace gantry::sim {

struct ErrorCode;

/// How many tasks of each captured stream come before a place.
using Progress = std::map<const SimStream*, std::size_t>;

/// A place in a capture, held by an event that was recorded there.
struct CapturePoint {
  std::uint64_t session = 0;
  Progress seen;
};

/// An object that a capture and its graph retain: its `release` is called with the last of those
/// that keep it.
class UserObject {
 public:
  UserObject(void (*release)(void*), void* data) : release_(release), data_(data) {}
  ~UserObject() { release_(data_); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  void (*const release_)(void*);
  void* const data_;
};
using UserObjects = std::vector<std::shared_ptr<const UserObject>>;

/// The work of a capture: tasks in the order of their submission, which respects every wait.
struct SimGraph {
  std::vector<Task> tasks;
  bool waits_for_peers = false;  ///< one of the tasks does
  UserObjects kept;
  std::mutex mutex;                  ///< guards what follows; taken on host threads only
  SimStream* last_stream = nullptr;  ///< where it was launched last
  std::uint64_t last_ticket = 0;
};

/// One capture in progress.
class CaptureSession {
 public:
  CaptureSession(std::uint64_t id, CaptureMode mode, SimStream* origin)
      : id(id), mode(mode), owner(std::this_thread::get_id()), origin(origin) {}

  const std::uint64_t id;
  const CaptureMode mode;
  const std::thread::id owner;
  SimStream* const origin;
  bool invalid = false;
  bool waits_for_peers = false;
  std::vector<Task> tasks;
  UserObjects kept;
  std::map<SimStream*, Progress> streams;  ///< who takes part, and what each is ordered after
};

/// All captures in progress and all graphs. Thread safety: any host thread.
class CaptureTable {
 public:
  void begin(SimStream& stream, CaptureMode mode);
  [[nodiscard]] SimGraph* end(SimStream& stream);

  /// Collects the task if the stream is being captured (then it is moved from); else false.
  bool append(SimStream& stream, Task& task, bool waits_for_peers = false);
  /// The place that `stream`'s capture has reached; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<const CapturePoint> point(SimStream& stream);
  /// Number of `stream`'s capture, 0 if there is none.
  [[nodiscard]] std::uint64_t id_of(SimStream& stream);
  /// Keeps the objects for as long as the graph of `stream`'s capture. Throws if there is none.
  void keep(SimStream& stream, const UserObjects& objects);
  /// Makes `stream` part of the capture in which the point was recorded.
  void join(SimStream& stream, const CapturePoint& point);

  /// Throws and spoils the stream's capture, if there is one: the call is illegal there.
  void refuse(SimStream& stream, const std::string& doing);
  /// As refuse, for an outside event that a captured stream would wait for.
  void refuse_outside_event(SimStream& stream, const std::string& doing);
  /// Throws and spoils the capture if a capture forbids unsafe calls to this thread.
  void refuse_unsafe(const std::string& doing);
  /// The stream is destroyed: its capture is spoilt, and ends if it began there.
  void forget(SimStream& stream) noexcept;

  [[nodiscard]] bool contains(const void* graph) const;
  /// Takes the graph out of the table; false if it is none.
  bool remove(SimGraph* graph);

 private:
  [[noreturn]] void spoil(CaptureSession& session, const ErrorCode& code, const std::string& doing,
                          const SimStream& stream);
  void close(CaptureSession& session);
  CaptureSession* find(std::uint64_t id);

  mutable std::mutex mutex_;  ///< taken only while something is captured, or for graphs
  std::atomic<int> restrictive_{0};
  std::map<std::uint64_t, std::unique_ptr<CaptureSession>> sessions_;
  std::unordered_set<const void*> graphs_;
};

}  // namespace gantry::sim
