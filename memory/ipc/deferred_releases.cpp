#include "memory/ipc/deferred_releases.hpp"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <semaphore>
#include <utility>

#include "core/background_thread.hpp"
#include "memory/heap/heap_block.hpp"
#include "memory/ipc/service.hpp"

namespace gantry::memory {

struct DeferredReleases::Release {
  std::shared_ptr<ImportedExtent> extent;
  std::shared_ptr<IpcPeer> peer;
  std::uint32_t slot = 0;
  int device = 0;
  std::atomic<int> incomplete{1};  ///< host functions to come, and one for submit()

  // Guarded by the lock of the lists.
  std::vector<NativeEvent> events;
  /// Work on streams that were destroyed before the drop; counts as one incomplete.
  std::vector<StreamUse> destroyed;
  bool has_all_events = false;  ///< the events cover all of the work
  bool is_pending = true;
  std::list<std::shared_ptr<Release>>::iterator place;
};

struct DeferredReleases::State {
  std::mutex mutex;  ///< never held in a driver call: host functions lock it
  std::list<std::shared_ptr<Release>> pending;
  std::list<std::shared_ptr<Release>> ready;
  bool has_thread = false;
  std::size_t with_destroyed = 0;  ///< releases in `pending` that wait for destroyed streams
  std::mutex performing;           ///< held while releases are performed
  std::counting_semaphore<> wake{0};

  void move_to_ready(Release& release) {
    if (!std::exchange(release.is_pending, false)) return;
    ready.splice(ready.end(), pending, release.place);
  }
};

struct DeferredReleases::Completions {
  std::vector<NativeEvent> events;
  std::vector<StreamUse> destroyed;
  std::size_t expected_events = 0;  ///< one for each host function
};

DeferredReleases& DeferredReleases::instance() {
  static auto& releases = *new DeferredReleases();
  return releases;
}

DeferredReleases::DeferredReleases() : state_(*new State()) {}

void DeferredReleases::submit(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer,
                              std::uint32_t slot, const std::vector<StreamClock*>& streams) {
  auto release = std::make_shared<Release>();
  Completions completions;
  completions.events.reserve(streams.size());
  completions.destroyed.reserve(streams.size());
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.has_thread) {
      start_background_thread("gantry-ipc-free", [this] {
        for (;;) {
          state_.wake.acquire();
          perform_ready();
        }
      }).detach();
      state_.has_thread = true;
    }
    release->place = state_.pending.insert(state_.pending.end(), release);
  }
  release->device = extent->device();
  release->slot = slot;
  release->extent = std::move(extent);
  release->peer = std::move(peer);
  for (StreamClock* stream : streams) add_completion(release, *stream, completions);
  bool polls = false;
  {
    const std::lock_guard lock(state_.mutex);
    release->has_all_events =
        completions.events.size() == completions.expected_events && completions.destroyed.empty();
    release->events = std::move(completions.events);
    polls = state_.with_destroyed > 0;
    if (!completions.destroyed.empty()) {
      release->destroyed = std::move(completions.destroyed);
      release->incomplete.fetch_add(1);
      ++state_.with_destroyed;
    }
  }
  complete_one(*release);
  if (polls) poll_destroyed_streams();
}

void DeferredReleases::launch_host_function(const std::shared_ptr<Release>& release,
                                            NativeStream stream) {
  auto carried = std::make_unique<std::shared_ptr<Release>>(release);
  release->incomplete.fetch_add(1);
  try {
    driver().launch_host_function(
        stream,
        [](void* data) {
          const std::unique_ptr<std::shared_ptr<Release>> owner(
              static_cast<std::shared_ptr<Release>*>(data));
          instance().complete_one(**owner);
        },
        carried.get());
  } catch (...) {
    release->incomplete.fetch_sub(1);
    throw;
  }
  static_cast<void>(carried.release());
}

void DeferredReleases::add_completion(const std::shared_ptr<Release>& release, StreamClock& clock,
                                      Completions& completions) noexcept {
  const NativeStream stream = clock.native();
  const bool is_external = clock.is_external();
  const auto add_destroyed = [&] {
    completions.destroyed.push_back({&clock, clock.next_sequence()});  // has room
  };
  if (is_external && !clock.may_submit()) return add_destroyed();
  try {
    // The program orders graph launches itself: nothing recorded here covers a later launch.
    if (driver().is_capturing(stream)) return;
    launch_host_function(release, stream);
  } catch (...) {
    if (is_external) return add_destroyed();
    // The stream accepts no host function: wait for it.
    try {
      driver().synchronize_stream(stream);
    } catch (...) {
      // The stream has failed: its work has ended.
    }
    return;
  }
  ++completions.expected_events;
  try {
    const NativeEvent event = driver().create_event(stream.device, {});
    completions.events.push_back(event);  // has room
    driver().record_event(event, stream);
  } catch (...) {
    ++completions
          .expected_events;  // Without its event, the host function alone reports completion.
  }
}

void DeferredReleases::complete_one(Release& release) {
  if (release.incomplete.fetch_sub(1) != 1) return;
  {
    const std::lock_guard lock(state_.mutex);
    state_.move_to_ready(release);
  }
  state_.wake.release();
}

void DeferredReleases::perform_ready() {
  const std::lock_guard performing(state_.performing);
  std::list<std::shared_ptr<Release>> ready;
  {
    const std::lock_guard lock(state_.mutex);
    ready.swap(state_.ready);
  }
  for (const auto& release : ready) {
    release->extent.reset();
    release->peer->release(release->slot);
    for (const NativeEvent event : release->events) driver().destroy_event(event);
    release->events.clear();
  }
}

void DeferredReleases::poll_destroyed_streams() {
  std::vector<std::shared_ptr<Release>> completed;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : state_.pending) {
      const bool is_complete = std::ranges::all_of(release->destroyed, [](const StreamUse& use) {
        return use.sequence <= use.clock->completed();
      });
      if (!release->destroyed.empty() && is_complete) completed.push_back(release);
    }
    for (const auto& release : completed) {
      release->destroyed.clear();
      --state_.with_destroyed;
    }
  }
  for (const auto& release : completed) complete_one(*release);
}

void DeferredReleases::run_completed() {
  poll_destroyed_streams();
  std::vector<std::shared_ptr<Release>> completed;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : state_.pending) {
      if (release->has_all_events) completed.push_back(release);
    }
  }
  // An event is not reached while an earlier error of its stream is unreported.
  std::erase_if(completed, [](const auto& release) {
    return !std::ranges::all_of(release->events,
                                [](NativeEvent event) { return driver().event_reached(event); });
  });
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : completed) state_.move_to_ready(*release);
  }
  perform_ready();
}

std::size_t DeferredReleases::pending(int device) {
  const std::lock_guard lock(state_.mutex);
  return static_cast<std::size_t>(std::ranges::count_if(
      state_.pending, [device](const auto& release) { return release->device == device; }));
}

}  // namespace gantry::memory
