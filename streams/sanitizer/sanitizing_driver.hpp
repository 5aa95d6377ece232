// The driver of a process whose sanitizer is on.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include <gantry/extend/forwarding_driver.hpp>

#include "streams/sanitizer/tracker.hpp"

namespace gantry::sanitizer {

/// Tells the tracker of orders, copies and graphs, after the driver behind it accepted them. So
/// whatever a layer does between its streams is seen, also its internal events.
class SanitizingDriver final : public ForwardingDriver {
 public:
  explicit SanitizingDriver(Driver& wrapped) : ForwardingDriver(wrapped) {}

  void synchronize_device(int device) override;

  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override;
  void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                 NativeStream stream) override;
  void copy_batch(std::span<const CopyRegion> regions, NativeStream stream) override;
  void fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) override;

  [[nodiscard]] bool query_stream(NativeStream stream) override;
  void synchronize_stream(NativeStream stream) override;
  void wait_event(NativeStream stream, NativeEvent event) override;
  void wait_external_event(NativeStream stream, NativeEvent event) override;
  void wait_for_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) override;

  void destroy_event(NativeEvent event) noexcept override;
  void record_event(NativeEvent event, NativeStream stream) override;
  void record_external_event(NativeEvent event, NativeStream stream) override;
  [[nodiscard]] bool query_event(NativeEvent event) override;
  void synchronize_event(NativeEvent event) override;
  [[nodiscard]] NativeEventHandle export_event(NativeEvent event) override;
  [[nodiscard]] NativeEvent open_event(int device, const NativeEventHandle& handle) override;

  void unmap(void* address, std::size_t bytes) override;

  [[nodiscard]] NativeGraph end_capture(NativeStream stream) override;
  void begin_condition(NativeStream stream, const NativeCondition& condition,
                       NativeStream body) override;
  void end_condition(NativeStream body) override;
  void abandon_condition(NativeStream body) noexcept override;
  void launch_graph(NativeGraph graph, NativeStream stream) override;
  [[nodiscard]] bool update_graph(NativeGraph graph, NativeGraph source) override;
  void destroy_graph(NativeGraph graph) noexcept override;

 private:
  /// A body of a condition that is being captured.
  struct Body {
    NativeStream around;
    NativeCondition condition;
  };

  [[nodiscard]] PointerKind kind_of(const void* data);
  /// The body that began on the stream, which ends.
  std::optional<Body> take_body(NativeStream stream) noexcept;

  std::mutex mutex_;
  std::map<void*, Body> bodies_;  ///< by the handles of their streams
};

}  // namespace gantry::sanitizer
