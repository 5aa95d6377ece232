#include "streams/sanitizer/sanitizing_driver.hpp"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

#include "streams/sanitizer/hooks.hpp"

namespace gantry::sanitizer {
namespace {

Tracker& tracker() { return Tracker::instance(); }

// Calls act(point) if the sanitizer is on and the driver knows the stream.
template <class Act>
void at_point_of(NativeStream stream, const Act& act) {
  if (!is_on()) return;
  if (const std::optional<StreamPoint> point = tracker().locate(stream)) act(*point);
}

// Runs at the end of a scope, also after an exception: work that failed is over all the same.
template <class Act>
class Finally {
 public:
  explicit Finally(Act act) : act_(std::move(act)) {}
  ~Finally() {
    try {
      act_();
    } catch (...) {
      // Without memory for the clock the report may name a race that does not exist.
    }
  }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  Act act_;
};

Stream named(NativeStream stream) {
  return Stream::external(stream.handle, Device::cuda(stream.device));
}

// Submits a copy or a fill between entering and committing its operands.
template <class Submit>
void enter_and(const char* operation, NativeStream stream, const std::vector<Use>& uses,
               const Submit& submit) {
  if (!tracker().locate(stream)) return submit();  // the driver refuses it
  Submission submission(operation, named(stream), uses);
  submit();
  submission.commit();
}

}  // namespace

void SanitizingDriver::synchronize_device(int device) {
  const Finally waited([&] {
    if (is_on()) tracker().wait_on_host_for_device(device);
  });
  wrapped().synchronize_device(device);
}

PointerKind SanitizingDriver::kind_of(const void* data) {
  try {
    return wrapped().pointer_info(data).kind;
  } catch (const CudaError&) {
    return PointerKind::unregistered;
  }
}

// Pageable memory has no record: the call blocks until it is done with it.
void SanitizingDriver::copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) {
  if (!is_on()) return wrapped().copy(dst, src, bytes, stream);
  const PointerKind to = kind_of(dst);
  const PointerKind from = kind_of(src);
  std::vector<Use> uses;
  if (to != PointerKind::unregistered) uses.push_back(writes({dst, bytes}));
  if (from != PointerKind::unregistered) uses.push_back(reads({src, bytes}));
  enter_and("copy", stream, uses, [&] { wrapped().copy(dst, src, bytes, stream); });
  const bool is_on_device = to == PointerKind::device || from == PointerKind::device;
  const bool is_pageable = to == PointerKind::unregistered || from == PointerKind::unregistered;
  if (is_pageable || !is_on_device) {
    at_point_of(stream, [&](const StreamPoint& point) { tracker().wait_on_host(point); });
  }
}

void SanitizingDriver::copy_peer(void* dst, int dst_device, const void* src, int src_device,
                                 std::size_t bytes, NativeStream stream) {
  const auto submit = [&] { wrapped().copy_peer(dst, dst_device, src, src_device, bytes, stream); };
  if (!is_on()) return submit();
  enter_and("copy", stream, {writes({dst, bytes}), reads({src, bytes})}, submit);
}

void SanitizingDriver::copy_batch(std::span<const CopyRegion> regions, NativeStream stream) {
  const auto submit = [&] { wrapped().copy_batch(regions, stream); };
  if (!is_on()) return submit();
  std::vector<Use> uses;
  for (const CopyRegion& region : regions) {
    uses.push_back(writes({region.to, region.bytes}));
    uses.push_back(reads({region.from, region.bytes}));
  }
  enter_and("copy", stream, uses, submit);
}

void SanitizingDriver::fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) {
  const auto submit = [&] { wrapped().fill(dst, value, bytes, stream); };
  if (!is_on()) return submit();
  enter_and("fill", stream, {writes({dst, bytes})}, submit);
}

bool SanitizingDriver::query_stream(NativeStream stream) {
  if (!wrapped().query_stream(stream)) return false;
  at_point_of(stream, [](const StreamPoint& point) { tracker().wait_on_host(point); });
  return true;
}

void SanitizingDriver::synchronize_stream(NativeStream stream) {
  const Finally waited([&] {
    at_point_of(stream, [](const StreamPoint& point) { tracker().wait_on_host(point); });
  });
  wrapped().synchronize_stream(stream);
}

void SanitizingDriver::wait_event(NativeStream stream, NativeEvent event) {
  wrapped().wait_event(stream, event);
  at_point_of(stream, [&](const StreamPoint& point) { tracker().wait(point, event); });
}

void SanitizingDriver::wait_external_event(NativeStream stream, NativeEvent event) {
  wrapped().wait_external_event(stream, event);
  at_point_of(stream, [](const StreamPoint& point) { tracker().wait_for_unknown(point); });
}

void SanitizingDriver::wait_for_word(NativeStream stream, const std::uint32_t* word,
                                     std::uint32_t value) {
  wrapped().wait_for_word(stream, word, value);
  at_point_of(stream, [](const StreamPoint& point) { tracker().wait_for_unknown(point); });
}

void SanitizingDriver::destroy_event(NativeEvent event) noexcept {
  if (is_on()) tracker().forget(event);
  wrapped().destroy_event(event);
}

void SanitizingDriver::record_event(NativeEvent event, NativeStream stream) {
  wrapped().record_event(event, stream);
  at_point_of(stream, [&](const StreamPoint& point) { tracker().record(event, point); });
}

// A launch may record the event anew at any time.
void SanitizingDriver::record_external_event(NativeEvent event, NativeStream stream) {
  wrapped().record_external_event(event, stream);
  if (is_on()) tracker().share(event);
}

bool SanitizingDriver::query_event(NativeEvent event) {
  if (!wrapped().query_event(event)) return false;
  if (is_on()) tracker().wait_on_host(event);
  return true;
}

void SanitizingDriver::synchronize_event(NativeEvent event) {
  const Finally waited([&] {
    if (is_on()) tracker().wait_on_host(event);
  });
  wrapped().synchronize_event(event);
}

NativeEventHandle SanitizingDriver::export_event(NativeEvent event) {
  const NativeEventHandle handle = wrapped().export_event(event);
  if (is_on()) tracker().share(event);
  return handle;
}

NativeEvent SanitizingDriver::open_event(int device, const NativeEventHandle& handle) {
  NativeEvent event = wrapped().open_event(device, handle);
  if (is_on()) tracker().share(event);
  return event;
}

void SanitizingDriver::unmap(void* address, std::size_t bytes) {
  wrapped().unmap(address, bytes);
  if (is_on()) tracker().take_memory(address, bytes);
}

NativeGraph SanitizingDriver::end_capture(NativeStream stream) {
  std::optional<StreamPoint> before;
  at_point_of(stream, [&](const StreamPoint& point) { before = point; });
  try {
    NativeGraph graph = wrapped().end_capture(stream);
    if (before) tracker().finish_capture(before->capture, graph);
    return graph;
  } catch (...) {
    if (before) tracker().finish_capture(before->capture, nullptr);
    throw;
  }
}

// The body follows the work before its condition, and the work behind the condition follows the
// body. Each round reads the flag; a further one reads what the body wrote.
void SanitizingDriver::begin_condition(NativeStream stream, const NativeCondition& condition,
                                       NativeStream body) {
  if (!is_on()) return wrapped().begin_condition(stream, condition, body);
  enter_and("condition", stream, {reads({condition.flag, condition.flag_bytes})},
            [&] { wrapped().begin_condition(stream, condition, body); });
  at_point_of(stream, [&](const StreamPoint& before) {
    at_point_of(body, [&](const StreamPoint& after) { tracker().order(before, after); });
  });
  const std::lock_guard lock(mutex_);
  bodies_[body.handle] = {stream, condition};
}

void SanitizingDriver::end_condition(NativeStream body) {
  const std::optional<Body> begun = take_body(body);
  if (!is_on() || !begun) return wrapped().end_condition(body);
  if (begun->condition.kind == ConditionKind::while_) {
    const NativeCondition& condition = begun->condition;
    enter_and("condition", body, {reads({condition.flag, condition.flag_bytes})}, [] {});
  }
  at_point_of(body, [&](const StreamPoint& before) {
    at_point_of(begun->around, [&](const StreamPoint& after) { tracker().order(before, after); });
  });
  wrapped().end_condition(body);
}

void SanitizingDriver::abandon_condition(NativeStream body) noexcept {
  static_cast<void>(take_body(body));
  wrapped().abandon_condition(body);
}

std::optional<SanitizingDriver::Body> SanitizingDriver::take_body(NativeStream stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = bodies_.find(stream.handle);
  if (found == bodies_.end()) return std::nullopt;
  const Body body = found->second;
  bodies_.erase(found);
  return body;
}

void SanitizingDriver::launch_graph(NativeGraph graph, NativeStream stream) {
  if (!is_on() || !tracker().locate(stream)) return wrapped().launch_graph(graph, stream);
  Submission submission(graph, named(stream));
  wrapped().launch_graph(graph, stream);
  submission.commit();
  at_point_of(stream, [&](const StreamPoint& point) { tracker().finish_replay(graph, point); });
}

bool SanitizingDriver::update_graph(NativeGraph graph, NativeGraph source) {
  if (!wrapped().update_graph(graph, source)) return false;
  if (is_on()) tracker().update_graph(graph, source);
  return true;
}

void SanitizingDriver::destroy_graph(NativeGraph graph) noexcept {
  if (is_on()) tracker().forget_graph(graph);
  wrapped().destroy_graph(graph);
}

}  // namespace gantry::sanitizer
