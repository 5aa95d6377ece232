// Keeps a stream busy until a test lets it go.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::testing {

/// While it lives, the stream that it was made for stands at this point: work submitted later
/// waits.
///
/// The destructor releases the stream. CUDA runs one host function at a time, in the order in which
/// their streams reach them: release the oldest hold first. Thread safety: any thread.
class StreamHold {
 public:
  explicit StreamHold(const Stream& stream) : StreamHold(stream.native()) {}
  explicit StreamHold(const NativeStream& stream) : state_(std::make_shared<State>()) {
    auto* shared = new std::shared_ptr<State>(state_);
    driver().launch_host_function(
        stream,
        [](void* data) {
          const std::unique_ptr<std::shared_ptr<State>> owner(
              static_cast<std::shared_ptr<State>*>(data));
          State& state = **owner;
          std::unique_lock lock(state.mutex);
          state.released.wait(lock, [&] { return state.is_released; });
        },
        shared);
  }
  ~StreamHold() { release(); }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

  /// Lets the stream go on.
  void release() {
    const std::lock_guard lock(state_->mutex);
    state_->is_released = true;
    state_->released.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable released;
    bool is_released = false;
  };

  std::shared_ptr<State> state_;
};

}  // namespace gantry::testing
