#include "device/sim/sim_capture.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "device/drivers/capture_devices.hpp"
#include "device/sim/devices/sim_error.hpp"
#include "device/sim/sim_driver.hpp"

namespace gantry::sim {

namespace {

bool is_captured(const SimStream& stream) {
  return stream.capture.load(std::memory_order_relaxed) != nullptr;
}

void merge(Progress& into, const Progress& from) {
  for (const auto& [stream, count] : from) into[stream] = std::max(into[stream], count);
}

void merge(NodeList& into, const NodeList& from) {
  NodeList all;
  std::ranges::set_union(into, from, std::back_inserter(all));
  into = std::move(all);
}

void invalidate(CaptureSession& session) {
  for (CaptureSession* one = &session; one != nullptr; one = one->around) one->invalid = true;
}

}  // namespace

CaptureTable::~CaptureTable() {
  for (const auto& [id, session] : sessions_) OpenCaptures::remove(session->origin);
}

void CaptureTable::spoil(CaptureSession& session, const ErrorCode& code, const std::string& doing,
                         const SimStream& stream) {
  invalidate(session);
  fail(code, doing, stream.device(), "the capture is spoilt and must be ended");
}

std::uint64_t CaptureTable::next_id() {
  // Also machines that follow each other in one process, as in tests, give no number twice.
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CaptureSession* CaptureTable::find(std::uint64_t id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

void CaptureTable::close(CaptureSession& session) {
  for (auto next = sessions_.begin(); next != sessions_.end();) {
    CaptureSession& body = *(next++)->second;
    if (body.around != &session) continue;
    session.invalid = true;
    close(body);
    next = sessions_.begin();
  }
  for (const auto& [stream, progress] : session.streams) {
    stream->capture.store(nullptr, std::memory_order_relaxed);
  }
  if (session.around == nullptr) OpenCaptures::remove(session.origin);
  open_.fetch_sub(1, std::memory_order_relaxed);
  sessions_.erase(session.id);
}

void CaptureTable::begin(SimStream& stream, CaptureMode mode) {
  const std::lock_guard lock(mutex_);
  if (is_captured(stream)) {
    fail(kIllegalState, "beginning a capture on " + stream.name(), stream.device(),
         "the stream is being captured already");
  }
  const std::uint64_t id = next_id();
  auto session = std::make_unique<CaptureSession>(id, mode, &stream);
  session->streams[&stream] = {};
  OpenCaptures::add(&stream);
  stream.capture.store(session.get(), std::memory_order_relaxed);
  sessions_[id] = std::move(session);
  open_.fetch_add(1, std::memory_order_relaxed);
}

std::unique_ptr<SimGraph> CaptureTable::end(SimStream& stream) {
  const std::string doing = "ending the capture on " + stream.name();
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr) {
    fail(kIllegalState, doing, stream.device(), "the stream is not being captured");
  }
  if (session->origin != &stream) {
    session->invalid = true;
    fail(kCaptureUnmatched, doing, stream.device(),
         "the capture began on " + session->origin->name());
  }
  if (session->mode != CaptureMode::relaxed && session->owner != std::this_thread::get_id()) {
    fail(kCaptureWrongThread, doing, stream.device());
  }
  if (session->around != nullptr) {
    spoil(*session, kCaptureUnmatched, doing + ", which is the body of a condition", stream);
  }
  auto graph = std::make_unique<SimGraph>();
  graph->kept = std::move(session->kept);
  std::vector<GraphNode> nodes = finish(*session, stream, doing);
  graph->plan = std::make_unique<GraphPlan>(std::move(nodes), stream);
  return graph;
}

std::vector<GraphNode> CaptureTable::finish(CaptureSession& session, SimStream& stream,
                                            const std::string& doing) {
  std::string unjoined;
  const Progress& reached = session.streams[&stream];
  for (const auto& [other, progress] : session.streams) {
    const auto own = progress.find(other);
    const std::size_t count = own == progress.end() ? 0 : own->second;
    const auto seen = reached.find(other);
    if (count > (seen == reached.end() ? 0 : seen->second)) unjoined = other->name();
  }
  CaptureSession* const around = session.around;
  const bool has_open_body = std::ranges::any_of(
      sessions_, [&](const auto& entry) { return entry.second->around == &session; });
  const bool invalid = session.is_spoilt() || has_open_body;
  if (around != nullptr && (invalid || !unjoined.empty())) around->outermost().invalid = true;
  std::vector<GraphNode> nodes = std::move(session.nodes);
  close(session);
  if (invalid) fail(kCaptureInvalidated, doing, stream.device());
  if (!unjoined.empty()) {
    fail(kCaptureUnjoined, doing, stream.device(),
         unjoined + " took part, but the stream does not wait for it");
  }
  return nodes;
}

CaptureSession* CaptureTable::session_to_append(const SimStream& stream) {
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session != nullptr && session->is_spoilt()) {
    fail(kCaptureInvalidated, "capturing work on " + stream.name(), stream.device());
  }
  return session;
}

bool CaptureTable::append(SimStream& stream, Task& task, KernelWaits waits) {
  if (!is_captured(stream)) return false;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = session_to_append(stream);
  if (session == nullptr) return false;
  NodeList& frontier = session->frontiers[&stream];
  session->nodes.push_back({.task = std::move(task),
                            .after = std::exchange(frontier, {session->nodes.size()}),
                            .stream = &stream,
                            .waits = waits});
  ++session->streams[&stream][&stream];
  return true;
}

bool CaptureTable::append_event(SimStream& stream, NativeEvent event, EventNode kind,
                                const std::string& doing) {
  if (!is_captured(stream)) return false;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = session_to_append(stream);
  if (session == nullptr) return false;
  if (session->around != nullptr) spoil(*session, kCaptureUnsupported, doing, stream);
  NodeList& frontier = session->frontiers[&stream];
  session->nodes.push_back({.task = [] {},
                            .after = std::exchange(frontier, {session->nodes.size()}),
                            .stream = &stream,
                            .event = event,
                            .is_wait = kind == EventNode::wait});
  ++session->streams[&stream][&stream];
  return true;
}

bool CaptureTable::append(SimStream& stream, const SimGraph& graph) {
  if (!is_captured(stream)) return false;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = session_to_append(stream);
  if (session == nullptr) return false;
  const std::string doing = "capturing a graph on " + stream.name();
  if (graph.plan->has_conditions()) {
    fail(kNotSupported, doing, stream.device(), "the graph has conditions");
  }
  if (session->around != nullptr &&
      (graph.plan->waits() == KernelWaits::for_peers || graph.plan->has_events() ||
       std::ranges::any_of(graph.plan->side_devices(),
                           [&](int device) { return device != stream.device(); }))) {
    spoil(*session, kCaptureUnsupported, doing + " into a body of one device", stream);
  }
  const std::size_t offset = session->nodes.size();
  std::vector<bool> is_last(graph.plan->nodes().size(), true);
  NodeList& frontier = session->frontiers[&stream];
  for (GraphNode node : graph.plan->nodes()) {
    for (std::size_t& before : node.after) {
      is_last[before] = false;
      before += offset;
    }
    if (node.after.empty()) node.after = frontier;
    session->nodes.push_back(std::move(node));
  }
  if (!is_last.empty()) frontier.clear();
  for (std::size_t i = 0; i < is_last.size(); ++i) {
    if (is_last[i]) frontier.push_back(offset + i);
  }
  UserObjects& kept = session->outermost().kept;
  kept.insert(kept.end(), graph.kept.begin(), graph.kept.end());
  session->streams[&stream][&stream] += is_last.size();
  return true;
}

std::shared_ptr<const CapturePoint> CaptureTable::point(SimStream& stream) {
  if (!is_captured(stream)) return nullptr;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr) return nullptr;
  return std::make_shared<const CapturePoint>(
      CapturePoint{session->id, session->streams[&stream], session->frontiers[&stream]});
}

std::uint64_t CaptureTable::id_of(SimStream& stream) {
  if (!is_captured(stream)) return 0;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  return session == nullptr ? 0 : session->outermost().id;
}

void CaptureTable::keep(SimStream& stream, const UserObjects& objects) {
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr) {
    fail(kIllegalState, "giving an object to the capture on " + stream.name(), stream.device(),
         "the stream is not being captured");
  }
  UserObjects& kept = session->outermost().kept;
  kept.insert(kept.end(), objects.begin(), objects.end());
}

void CaptureTable::join(SimStream& stream, const CapturePoint& point) {
  const std::string doing = "waiting for a captured event on " + stream.name();
  const std::lock_guard lock(mutex_);
  CaptureSession* session = find(point.session);
  CaptureSession* current = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr) {
    fail(kCapturedEvent, doing, stream.device(), "the capture in which it was recorded is over");
  }
  if (current != nullptr && current != session) {
    invalidate(*session);  // CUDA spoils both
    spoil(*current, kCaptureMerge, doing, stream);
  }
  if (session->is_spoilt()) fail(kCaptureInvalidated, doing, stream.device());
  if (session->around != nullptr && stream.device() != session->origin->device()) {
    spoil(*session, kCaptureUnsupported, doing + ", since a body has one device", stream);
  }
  merge(session->streams[&stream], point.seen);
  merge(session->frontiers[&stream], point.frontier);
  stream.capture.store(session, std::memory_order_relaxed);
  CaptureDevices::note(session->outermost().id, stream.device());
}

void CaptureTable::refuse(SimStream& stream, const std::string& doing) {
  if (!is_captured(stream)) return;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session != nullptr) spoil(*session, kCaptureUnsupported, doing, stream);
}

void CaptureTable::refuse_outside_event(SimStream& stream, const std::string& doing) {
  if (!is_captured(stream)) return;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session != nullptr) spoil(*session, kCaptureIsolation, doing, stream);
}

void CaptureTable::refuse_default_stream(const CapturePoint& point, int device,
                                         const std::string& doing) {
  const std::lock_guard lock(mutex_);
  CaptureSession* session = find(point.session);
  if (session == nullptr) {
    fail(kCapturedEvent, doing, device, "the capture in which it was recorded is over");
  }
  spoil(*session, kCaptureImplicit, doing, *session->origin);
}

void CaptureTable::refuse_captured_event(const CapturePoint& point, int device,
                                         const std::string& doing) {
  const std::lock_guard lock(mutex_);
  CaptureSession* session = find(point.session);
  if (session == nullptr) fail(kCapturedEvent, doing, device);
  spoil(*session, kCapturedEvent, doing, *session->origin);
}

void CaptureTable::refuse_device(int device, const std::string& doing) {
  if (open_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    const bool own = session->owner == std::this_thread::get_id();
    const bool forbids = session->mode == CaptureMode::global ||
                         (session->mode == CaptureMode::thread_local_ && own);
    const bool takes_part = std::ranges::any_of(
        session->streams, [&](const auto& entry) { return entry.first->device() == device; });
    if (forbids || takes_part) spoil(*session, kCaptureUnsupported, doing, *session->origin);
  }
}

void CaptureTable::forget(SimStream& stream) noexcept {
  if (!is_captured(stream)) return;
  const std::lock_guard lock(mutex_);
  CaptureSession* session = stream.capture.load(std::memory_order_relaxed);
  if (session == nullptr) return;
  for (CaptureSession* one = session; one != nullptr; one = one->around) one->invalid = true;
  if (session->origin == &stream) {
    close(*session);
  } else {
    session->streams.erase(&stream);
    stream.capture.store(nullptr, std::memory_order_relaxed);
  }
}

void CaptureTable::add(const SimGraph* graph) {
  const std::lock_guard lock(mutex_);
  graphs_.insert(graph);
}

bool CaptureTable::contains(const void* graph) const {
  const std::lock_guard lock(mutex_);
  return graphs_.contains(graph);
}

bool CaptureTable::remove(SimGraph* graph) {
  const std::lock_guard lock(mutex_);
  return graphs_.erase(graph) == 1;
}

void SimDriver::begin_capture(NativeStream stream, CaptureMode mode) {
  SimStream& s = stream_of(stream, "beginning a capture");
  if (stream.handle == nullptr) {
    fail(kCaptureUnsupported, "beginning a capture on " + s.name(), s.device(),
         "capture a stream that was created");
  }
  captures_.begin(s, mode);
}

bool SimDriver::is_capturing(NativeStream stream) {
  return is_captured(stream_of(stream, "asking for a capture"));
}

std::uint64_t SimDriver::capture_id(NativeStream stream) {
  return captures_.id_of(stream_of(stream, "asking for a capture"));
}

void SimDriver::retain_by_capture(NativeStream stream, void (*release)(void*), void* data) {
  const UserObjects object{std::make_shared<const UserObject>(release, data)};
  captures_.keep(stream_of(stream, "giving an object to a capture"), object);
}

}  // namespace gantry::sim
