// Conditions in captures: bodies are captured apart and run as one task of their stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/sim/devices/sim_error.hpp"
#include "device/sim/sim_capture.hpp"
#include "device/sim/sim_driver.hpp"

namespace gantry::sim {

bool ConditionBody::is_set() const {
  const auto* const bytes = static_cast<const std::byte*>(condition_.flag);
  return std::any_of(bytes, bytes + condition_.flag_bytes,
                     [](std::byte byte) { return byte != std::byte{0}; });
}

bool ConditionBody::add_stop(const std::uint32_t* word) {
  if (std::ranges::find(stops_, word) != stops_.end()) return true;
  if (stops_.size() == kMostStops) return false;
  stops_.push_back(word);
  return true;
}

bool ConditionBody::is_stopped() const {
  return std::ranges::any_of(stops_, [](const std::uint32_t* word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
  });
}

void ConditionBody::run() const {
  const bool is_loop = condition_.kind == ConditionKind::while_;
  while (is_set() && !is_closing_.load(std::memory_order_relaxed)) {
    for (const GraphNode& node : nodes_) node.task();
    if (!is_loop || is_stopped()) return;
  }
}

void CaptureTable::begin_body(SimStream& stream, SimStream& body_stream,
                              std::shared_ptr<ConditionBody> body) {
  const std::string doing = "beginning the body of a condition on " + body_stream.name();
  const std::lock_guard lock(mutex_);
  CaptureSession* const around = session_to_append(stream);
  if (around == nullptr) {
    fail(kIllegalState, doing, stream.device(), stream.name() + " is not being captured");
  }
  if (body_stream.capture.load(std::memory_order_relaxed) != nullptr) {
    fail(kIllegalState, doing, stream.device(), "the stream is being captured already");
  }
  const std::uint64_t id = next_id();
  auto session = std::make_unique<CaptureSession>(id, CaptureMode::relaxed, &body_stream, around);
  session->streams[&body_stream] = {};
  session->body = body;
  session->condition = around->nodes.size();
  NodeList& frontier = around->frontiers[&stream];
  around->nodes.push_back({.task = [body = std::move(body)] { body->run(); },
                           .after = std::exchange(frontier, {around->nodes.size()}),
                           .stream = &stream,
                           .is_condition = true});
  ++around->streams[&stream][&stream];
  body_stream.capture.store(session.get(), std::memory_order_relaxed);
  sessions_[id] = std::move(session);
  open_.fetch_add(1, std::memory_order_relaxed);
}

void CaptureTable::stop_bodies(SimStream& stream, const std::uint32_t* word) {
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  for (; session != nullptr && session->around != nullptr; session = session->around) {
    if (session->body->add_stop(word)) continue;
    fail(kNotSupported, "adding more than 8 words that end a loop", stream.device(),
         "at most 8 groups and windows wait in one loop");
  }
}

void CaptureTable::end_body(SimStream& stream) {
  const std::string doing = "ending the body of a condition on " + stream.name();
  const std::lock_guard lock(mutex_);
  CaptureSession* const session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr || session->around == nullptr) {
    fail(kIllegalState, doing, stream.device(), "the stream captures no body");
  }
  if (session->origin != &stream) {
    spoil(*session, kCaptureUnmatched, doing + ", which began on " + session->origin->name(),
          stream);
  }
  const std::shared_ptr<ConditionBody> body = session->body;
  CaptureSession& around = *session->around;
  const std::size_t condition = session->condition;
  std::vector<GraphNode> nodes = finish(*session, stream, doing);
  KernelWaits& waits = around.nodes[condition].waits;
  for (const GraphNode& node : nodes) waits = std::max(waits, node.waits);
  body->set_nodes(std::move(nodes));
}

void CaptureTable::abandon_body(SimStream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  CaptureSession* const session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr || session->around == nullptr || session->origin != &stream) return;
  session->outermost().invalid = true;
  close(*session);
}

int CaptureTable::depth_of(SimStream& stream) {
  if (stream.capture.load(std::memory_order_relaxed) == nullptr) return 0;
  const std::lock_guard lock(mutex_);
  int depth = 0;
  const CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  for (; session != nullptr && session->around != nullptr; session = session->around) ++depth;
  return depth;
}

void CaptureTable::refuse_in_body(SimStream& stream, const std::string& doing) {
  if (depth_of(stream) != 0) refuse(stream, doing + " in the body of a condition");
}

bool SimDriver::supports_conditions(int /*device*/) { return true; }

void SimDriver::begin_condition(NativeStream stream, const NativeCondition& condition,
                                NativeStream body) {
  const std::string_view doing = "beginning a condition";
  SimStream& s = stream_of(stream, doing);
  SimStream& b = stream_of(body, doing);
  if (body.handle == nullptr || s.device() != b.device()) {
    fail(kInvalidValue, doing, s.device(), "the body needs a created stream of the same device");
  }
  if (condition.flag_bytes != 1 && condition.flag_bytes != 4) {
    fail(kInvalidValue, doing, s.device(), "a flag has 1 or 4 bytes");
  }
  memory_->check_access(s.device(), condition.flag, condition.flag_bytes, std::string(doing));
  captures_.begin_body(s, b, std::make_shared<ConditionBody>(condition, is_closing_));
}

void SimDriver::stop_condition(NativeStream stream, const std::uint32_t* word) {
  captures_.stop_bodies(stream_of(stream, "adding a stop to a condition"), word);
}

void SimDriver::end_condition(NativeStream body) {
  captures_.end_body(stream_of(body, "ending the body of a condition"));
}

void SimDriver::abandon_condition(NativeStream body) noexcept {
  try {
    captures_.abandon_body(stream_of(body, "abandoning the body of a condition"));
  } catch (const CudaError&) {
    // There is no such stream, and so no body.
  }
}

int SimDriver::condition_depth(NativeStream stream) {
  return captures_.depth_of(stream_of(stream, "asking for the body of a condition"));
}

}  // namespace gantry::sim
