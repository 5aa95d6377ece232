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

#include "device/sim/sim_graph.hpp"
#include "device/sim/streams/sim_stream.hpp"

namespace gantry::sim {

struct ErrorCode;

/// How many tasks of each captured stream come before a place.
using Progress = std::map<const SimStream*, std::size_t>;

/// The use that a node makes of an event.
enum class EventNode : std::uint8_t { record, wait };

/// A place in a capture, held by an event that was recorded there.
struct CapturePoint {
  std::uint64_t session = 0;
  Progress seen;
  NodeList frontier;  ///< the nodes that a node here would come directly after
};

/// One capture in progress, or the body of a condition in one.
class CaptureSession {
 public:
  CaptureSession(std::uint64_t id, CaptureMode mode, SimStream* origin,
                 CaptureSession* around = nullptr)
      : id(id), mode(mode), owner(std::this_thread::get_id()), origin(origin), around(around) {}

  /// The capture itself, of which a body is a part.
  [[nodiscard]] CaptureSession& outermost() {
    return around == nullptr ? *this : around->outermost();
  }
  [[nodiscard]] bool is_spoilt() const {
    return invalid || (around != nullptr && around->is_spoilt());
  }

  const std::uint64_t id;
  const CaptureMode mode;
  const std::thread::id owner;
  SimStream* const origin;
  CaptureSession* const around;         ///< of a body: where its condition is
  std::shared_ptr<ConditionBody> body;  ///< of a body: what takes the nodes
  std::size_t condition = 0;            ///< of a body: its condition's node in `around`
  bool invalid = false;
  std::vector<GraphNode> nodes;
  UserObjects kept;
  std::map<SimStream*, Progress> streams;    ///< the captured ones, and what each is ordered after
  std::map<SimStream*, NodeList> frontiers;  ///< the nodes that the next of each comes after
};

/// All captures in progress and all graphs. Thread safety: any host thread.
class CaptureTable {
 public:
  CaptureTable() = default;
  ~CaptureTable();
  CaptureTable(const CaptureTable&) = delete;
  CaptureTable& operator=(const CaptureTable&) = delete;

  void begin(SimStream& stream, CaptureMode mode);
  /// The captured graph, without streams of its own.
  [[nodiscard]] std::unique_ptr<SimGraph> end(SimStream& stream);

  /// Collects the task if the stream is being captured (then it is moved from); else false.
  bool append(SimStream& stream, Task& task, KernelWaits waits = KernelWaits::never);
  /// Likewise for all nodes of a graph.
  bool append(SimStream& stream, const SimGraph& graph);
  /// Likewise for a node that records an event, or waits for one. Throws in a body.
  bool append_event(SimStream& stream, NativeEvent event, EventNode kind, const std::string& doing);
  /// The place that `stream`'s capture has reached; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<const CapturePoint> point(SimStream& stream);
  /// Adds a condition, whose body is captured on `body_stream` from now on.
  void begin_body(SimStream& stream, SimStream& body_stream, std::shared_ptr<ConditionBody> body);
  /// Ends the body that began on the stream.
  void end_body(SimStream& stream);
  /// Adds the word to all bodies around the work that is captured on `stream`.
  void stop_bodies(SimStream& stream, const std::uint32_t* word);
  /// Ends it, if there is one, and spoils the capture around it.
  void abandon_body(SimStream& stream) noexcept;
  /// Number of bodies around the next work of `stream`.
  [[nodiscard]] int depth_of(SimStream& stream);
  /// Throws and spoils the capture if the stream's work belongs to a body.
  void refuse_in_body(SimStream& stream, const std::string& doing);

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
  /// Throws and spoils the capture that the point belongs to, if it is under way: the default
  /// stream of `device` takes part in none.
  void refuse_default_stream(const CapturePoint& point, int device, const std::string& doing);
  /// Throws and spoils the capture that the point belongs to, if it is under way: an event that was
  /// recorded there has no state.
  [[noreturn]] void refuse_captured_event(const CapturePoint& point, int device,
                                          const std::string& doing);
  /// Throws and spoils the capture if one forbids this thread to synchronize with `device`: its
  /// mode does, or a stream of the device takes part.
  void refuse_device(int device, const std::string& doing);
  /// The stream is destroyed: its capture is spoilt, and ends if it began there.
  void forget(SimStream& stream) noexcept;

  /// Puts the graph into the table.
  void add(const SimGraph* graph);
  [[nodiscard]] bool contains(const void* graph) const;
  /// Takes the graph out of the table; false if it is none.
  bool remove(SimGraph* graph);

 private:
  /// The capture of `stream`, which may be none. Throws if it is spoilt. The lock is held.
  [[nodiscard]] static CaptureSession* session_to_append(const SimStream& stream);
  [[noreturn]] static void spoil(CaptureSession& session, const ErrorCode& code,
                                 const std::string& doing, const SimStream& stream);
  /// Ends the session and the bodies that are open in it, which spoils it.
  void close(CaptureSession& session);
  /// Ends the session that began on the stream and returns its nodes. Throws if it is spoilt.
  std::vector<GraphNode> finish(CaptureSession& session, SimStream& stream,
                                const std::string& doing);
  CaptureSession* find(std::uint64_t id);
  /// A number that no other capture or body of the process has.
  static std::uint64_t next_id();

  mutable std::mutex mutex_;  ///< taken only while something is captured, or for graphs
  std::atomic<int> open_{0};  ///< captures and bodies
  std::map<std::uint64_t, std::unique_ptr<CaptureSession>> sessions_;
  std::unordered_set<const void*> graphs_;
};

}  // namespace gantry::sim
