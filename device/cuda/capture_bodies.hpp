// Facts about conditions in captures that CUDA does not tell.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <gantry/device/native_handles.hpp>

namespace gantry::cuda {

/// Words of which each ends a loop once it is not 0.
struct StopWords {
  static constexpr int kMost = 8;

  const std::uint32_t* words[kMost] = {};
  int count = 0;
};

/// A body that is being captured. For CUDA it is a capture of its own.
struct CaptureBody {
  std::uint64_t id = 0;         ///< CUDA's number of it
  std::uint64_t outermost = 0;  ///< of the capture that it is a part of
  cudaGraph_t outermost_graph = nullptr;
  int depth = 1;                  ///< bodies around its work
  cudaStream_t stream = nullptr;  ///< where it began
  bool is_loop = false;
  cudaGraphConditionalHandle handle = 0;
  const void* flag = nullptr;
  std::size_t flag_bytes = 1;
  StopWords stops = {};
};

/// The bodies that are being captured, and the captures that have conditions. Never destroyed.
///
/// Thread safety: any thread. One load while no capture has conditions.
class CaptureBodies {
 public:
  static CaptureBodies& instance();

  /// CUDA tells no number of a capture that was invalidated: began() keeps it until ended().
  void began(cudaStream_t stream, std::uint64_t id);
  void ended(cudaStream_t stream);
  /// The number of the capture or the body that began on `stream` and has not ended; 0: none.
  [[nodiscard]] std::uint64_t id_of(cudaStream_t stream) const;

  void add(const CaptureBody& body);
  void remove(std::uint64_t id);
  [[nodiscard]] std::optional<CaptureBody> find(std::uint64_t id) const;
  [[nodiscard]] std::optional<CaptureBody> find_by_stream(cudaStream_t stream) const;
  /// The bodies of a capture that have not ended.
  [[nodiscard]] std::vector<CaptureBody> open_in(std::uint64_t outermost) const;
  /// Adds the word to the open bodies of a capture. False if one of them has StopWords::kMost.
  [[nodiscard]] bool add_stop(std::uint64_t outermost, const std::uint32_t* word);
  /// Lets forget() tell that the capture cannot become a graph.
  void spoil(std::uint64_t outermost);
  [[nodiscard]] bool is_spoilt(std::uint64_t outermost) const;

  /// Notes the capture or the body that an event was recorded in, where that is a body.
  void note_event(cudaEvent_t event, std::uint64_t id);
  /// The body that an event was recorded in; 0: none, or one that has ended.
  [[nodiscard]] std::uint64_t body_of(cudaEvent_t event) const;

  struct Ended {
    bool has_conditions = false;
    bool is_spoilt = false;
  };
  /// The known facts about a capture, which ends.
  Ended forget(std::uint64_t outermost);
  /// True if no capture has conditions.
  [[nodiscard]] bool is_empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  std::atomic<std::size_t> count_{0};  ///< of captures
  mutable std::mutex mutex_;
  std::map<std::uint64_t, CaptureBody> bodies_;
  std::map<cudaEvent_t, std::uint64_t> events_;    ///< recorded in bodies
  std::map<cudaStream_t, std::uint64_t> origins_;  ///< where captures began
  std::map<std::uint64_t, bool> captures_;         ///< with conditions: whether they are spoilt
};

/// CUDA's number of the capture or the body that `stream` takes part in; 0: none. Of a capture that
/// was invalidated only the stream where it began knows the number.
[[nodiscard]] std::uint64_t own_capture_id(NativeStream stream);

/// Spoils the capture and throws cudaErrorStreamCaptureUnsupported if `stream` takes part in a
/// body.
///
/// CUDA itself would invalidate the body. Ending an invalidated body frees its graph, which CUDA
/// 13.0 frees again with the graph around it. So no refused call about a body reaches CUDA.
void refuse_in_body(NativeStream stream, const char* call, const char* doing);

/// Likewise refuses a wait across the border of a body, with cudaErrorStreamCaptureIsolation.
void refuse_across_bodies(NativeStream stream, cudaEvent_t event);

}  // namespace gantry::cuda
