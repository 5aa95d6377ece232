#include "device/cuda/capture_bodies.hpp"

#include <algorithm>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"

namespace gantry::cuda {

CaptureBodies& CaptureBodies::instance() {
  static auto& bodies = *new CaptureBodies();
  return bodies;
}

void CaptureBodies::began(cudaStream_t stream, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  origins_[stream] = id;
}

void CaptureBodies::ended(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  origins_.erase(stream);
}

std::uint64_t CaptureBodies::id_of(cudaStream_t stream) const {
  if (const std::optional<CaptureBody> body = find_by_stream(stream)) return body->id;
  const std::lock_guard lock(mutex_);
  const auto found = origins_.find(stream);
  return found == origins_.end() ? 0 : found->second;
}

void CaptureBodies::add(const CaptureBody& body) {
  const std::lock_guard lock(mutex_);
  bodies_[body.id] = body;
  captures_.try_emplace(body.outermost, false);
  count_.store(captures_.size(), std::memory_order_relaxed);
}

void CaptureBodies::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  bodies_.erase(id);
  std::erase_if(events_, [&](const auto& event) { return event.second == id; });
}

void CaptureBodies::note_event(cudaEvent_t event, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (bodies_.contains(id)) {
    events_[event] = id;
  } else {
    events_.erase(event);
  }
}

std::uint64_t CaptureBodies::body_of(cudaEvent_t event) const {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  return found == events_.end() ? 0 : found->second;
}

std::optional<CaptureBody> CaptureBodies::find(std::uint64_t id) const {
  if (is_empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = bodies_.find(id);
  if (found == bodies_.end()) return std::nullopt;
  return found->second;
}

std::optional<CaptureBody> CaptureBodies::find_by_stream(cudaStream_t stream) const {
  if (is_empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, body] : bodies_) {
    if (body.stream == stream) return body;
  }
  return std::nullopt;
}

std::vector<CaptureBody> CaptureBodies::open_in(std::uint64_t outermost) const {
  std::vector<CaptureBody> open;
  if (is_empty()) return open;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, body] : bodies_) {
    if (body.outermost == outermost) open.push_back(body);
  }
  return open;
}

bool CaptureBodies::add_stop(std::uint64_t outermost, const std::uint32_t* word) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, body] : bodies_) {
    if (body.outermost != outermost) continue;
    StopWords& stops = body.stops;
    const auto end = stops.words + stops.count;
    if (std::find(stops.words, end, word) != end) continue;
    if (stops.count == StopWords::kMost) return false;
    stops.words[stops.count++] = word;
  }
  return true;
}

void CaptureBodies::spoil(std::uint64_t outermost) {
  const std::lock_guard lock(mutex_);
  captures_[outermost] = true;
  count_.store(captures_.size(), std::memory_order_relaxed);
}

bool CaptureBodies::is_spoilt(std::uint64_t outermost) const {
  const std::lock_guard lock(mutex_);
  const auto known = captures_.find(outermost);
  return known != captures_.end() && known->second;
}

CaptureBodies::Ended CaptureBodies::forget(std::uint64_t outermost) {
  if (is_empty()) return {};
  const std::lock_guard lock(mutex_);
  const auto known = captures_.find(outermost);
  if (known == captures_.end()) return {};
  const Ended ended{.has_conditions = true, .is_spoilt = known->second};
  captures_.erase(known);
  count_.store(captures_.size(), std::memory_order_relaxed);
  return ended;
}

std::uint64_t own_capture_id(NativeStream stream) {
  // The default stream cannot be captured, and asking about it would spoil another stream's.
  if (stream.handle == nullptr) return 0;
  const ContextScope scope(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  GANTRY_CUDA_CHECK(
      cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream.handle), &status, &id),
      "asking for a capture", stream);
  if (status == cudaStreamCaptureStatusInvalidated) {
    return CaptureBodies::instance().id_of(static_cast<cudaStream_t>(stream.handle));
  }
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

void refuse_in_body(NativeStream stream, const char* call, const char* doing) {
  CaptureBodies& bodies = CaptureBodies::instance();
  if (bodies.is_empty()) return;
  const std::optional<CaptureBody> body = bodies.find(own_capture_id(stream));
  if (!body) return;
  bodies.spoil(body->outermost);
  GANTRY_CUDA_CHECK_STATUS(cudaErrorStreamCaptureUnsupported, call, doing, stream);
}

void refuse_across_bodies(NativeStream stream, cudaEvent_t event) {
  CaptureBodies& bodies = CaptureBodies::instance();
  if (bodies.is_empty()) return;
  const std::uint64_t here = own_capture_id(stream);
  const std::uint64_t there = bodies.body_of(event);
  if (here == 0 || here == there) return;  // without a capture the stream joins the event's capture
  const std::optional<CaptureBody> own = bodies.find(here);
  const std::optional<CaptureBody> other = bodies.find(there);
  if (!own && !other) return;
  bodies.spoil(own ? own->outermost : other->outermost);
  GANTRY_CUDA_CHECK_STATUS(cudaErrorStreamCaptureIsolation, "cuStreamWaitEvent",
                           "waiting for an event of another body of a condition", stream);
}

}  // namespace gantry::cuda
