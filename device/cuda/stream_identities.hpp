// CUDA's numbers of streams, also while they are captured.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace gantry::cuda {

/// The answers of cuStreamGetId, which invalidates the capture of the stream that it is asked
/// about. Never destroyed.
///
/// Thread safety: any thread.
class StreamIdentities {
 public:
  static StreamIdentities& instance();

  void remember(CUstream stream, std::uint64_t identity);
  /// The last answer about a stream that is captured; a number of its own if there was none.
  [[nodiscard]] std::uint64_t known(CUstream stream);

 private:
  /// One handle stands for the default streams of all threads.
  using Key = std::pair<CUstream, std::thread::id>;
  static Key key_of(CUstream stream);

  std::mutex mutex_;
  std::map<Key, std::uint64_t> answers_;
  std::uint64_t next_ = std::uint64_t{1} << 63;  ///< far from CUDA's numbers
};

}  // namespace gantry::cuda
