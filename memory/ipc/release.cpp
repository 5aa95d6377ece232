#include "memory/ipc/release.hpp"

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

struct IpcReleases::Release {
  std::shared_ptr<ImportedExtent> extent;
  std::shared_ptr<IpcPeer> peer;
  std::uint32_t slot = 0;
  int device = 0;
  std::atomic<int> open{1};  ///< host functions to come; one for the releaser itself

  // Guarded by the lock of the lists.
  std::vector<NativeEvent> events;
  std::vector<StreamUse> gone;  ///< work on streams that were gone at the drop; counts as one open
  bool can_ask = false;         ///< the events tell about all of the work
  bool is_pending = true;
  std::list<std::shared_ptr<Release>>::iterator place;
};

struct IpcReleases::State {
  std::mutex mutex;  ///< held for moments only, never in a driver call: host functions take it
  std::list<std::shared_ptr<Release>> pending;
  std::list<std::shared_ptr<Release>> done;
  bool has_reaper = false;
  std::size_t with_gone = 0;  ///< releases in `pending` that wait for streams that are gone
  std::mutex ending;          ///< held while what is done is ended
  std::counting_semaphore<> wake{0};

  void move_to_done(Release& release) {
    if (!std::exchange(release.is_pending, false)) return;
    done.splice(done.end(), pending, release.place);
  }
};

struct IpcReleases::Marks {
  std::vector<NativeEvent> events;
  std::vector<StreamUse> gone;
  std::size_t count = 0;  ///< events that there should be
};

IpcReleases& IpcReleases::instance() {
  static auto& releases = *new IpcReleases();
  return releases;
}

IpcReleases::IpcReleases() : state_(*new State()) {}

void IpcReleases::submit(std::shared_ptr<ImportedExtent> extent, std::shared_ptr<IpcPeer> peer,
                         std::uint32_t slot, const std::vector<StreamClock*>& streams) {
  auto release = std::make_shared<Release>();
  Marks marks;
  marks.events.reserve(streams.size());
  marks.gone.reserve(streams.size());
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.has_reaper) {
      start_background_thread("gantry-ipc-free", [this] {
        for (;;) {
          state_.wake.acquire();
          end_done();
        }
      }).detach();
      state_.has_reaper = true;
    }
    release->place = state_.pending.insert(state_.pending.end(), release);
  }
  release->device = extent->device();
  release->slot = slot;
  release->extent = std::move(extent);
  release->peer = std::move(peer);
  for (StreamClock* stream : streams) mark(release, *stream, marks);
  bool looks = false;
  {
    const std::lock_guard lock(state_.mutex);
    release->can_ask = marks.events.size() == marks.count && marks.gone.empty();
    release->events = std::move(marks.events);
    looks = state_.with_gone > 0;
    if (!marks.gone.empty()) {
      release->gone = std::move(marks.gone);
      release->open.fetch_add(1);
      ++state_.with_gone;
    }
  }
  arrive(*release);
  if (looks) settle_gone();
}

void IpcReleases::launch_arrival(const std::shared_ptr<Release>& release, NativeStream stream) {
  auto carried = std::make_unique<std::shared_ptr<Release>>(release);
  release->open.fetch_add(1);
  try {
    driver().launch_host_function(
        stream,
        [](void* data) {
          const std::unique_ptr<std::shared_ptr<Release>> owner(
              static_cast<std::shared_ptr<Release>*>(data));
          instance().arrive(**owner);
        },
        carried.get());
  } catch (...) {
    release->open.fetch_sub(1);
    throw;
  }
  static_cast<void>(carried.release());
}

void IpcReleases::mark(const std::shared_ptr<Release>& release, StreamClock& clock,
                       Marks& marks) noexcept {
  const NativeStream stream = clock.native();
  const bool is_foreign = clock.is_external();
  const auto note_gone = [&] {
    marks.gone.push_back({&clock, clock.next_sequence()});
  };  // has room
  if (is_foreign && !clock.may_submit()) return note_gone();
  try {
    // Work in a graph is its keeper's business: no mark here would tell when it runs.
    if (driver().is_capturing(stream)) return;
    launch_arrival(release, stream);
  } catch (...) {
    if (is_foreign) return note_gone();
    // The dear way, when the stream takes no mark.
    try {
      driver().synchronize_stream(stream);
    } catch (...) {
      // The work has ended, though not well.
    }
    return;
  }
  ++marks.count;
  try {
    const NativeEvent event = driver().create_event(stream.device, {});
    marks.events.push_back(event);  // has room
    driver().record_event(event, stream);
  } catch (...) {
    ++marks.count;  // Without the event only the host function tells.
  }
}

void IpcReleases::arrive(Release& release) {
  if (release.open.fetch_sub(1) != 1) return;
  {
    const std::lock_guard lock(state_.mutex);
    state_.move_to_done(release);
  }
  state_.wake.release();
}

void IpcReleases::end_done() {
  const std::lock_guard ending(state_.ending);
  std::list<std::shared_ptr<Release>> done;
  {
    const std::lock_guard lock(state_.mutex);
    done.swap(state_.done);
  }
  for (const auto& release : done) {
    release->extent.reset();
    release->peer->release(release->slot);
    for (const NativeEvent event : release->events) driver().destroy_event(event);
    release->events.clear();
  }
}

void IpcReleases::settle_gone() {
  std::vector<std::shared_ptr<Release>> settled;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : state_.pending) {
      const bool is_over = std::ranges::all_of(release->gone, [](const StreamUse& use) {
        return use.sequence <= use.clock->completed();
      });
      if (!release->gone.empty() && is_over) settled.push_back(release);
    }
    for (const auto& release : settled) {
      release->gone.clear();
      --state_.with_gone;
    }
  }
  for (const auto& release : settled) arrive(*release);
}

void IpcReleases::finish() {
  settle_gone();
  std::vector<std::shared_ptr<Release>> asked;
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : state_.pending) {
      if (release->can_ask) asked.push_back(release);
    }
  }
  // Not reached while an error that came before waits to be reported.
  std::erase_if(asked, [](const auto& release) {
    return !std::ranges::all_of(release->events,
                                [](NativeEvent event) { return driver().event_reached(event); });
  });
  {
    const std::lock_guard lock(state_.mutex);
    for (const auto& release : asked) state_.move_to_done(*release);
  }
  end_done();
}

std::size_t IpcReleases::pending(int device) {
  const std::lock_guard lock(state_.mutex);
  return static_cast<std::size_t>(std::ranges::count_if(
      state_.pending, [device](const auto& release) { return release->device == device; }));
}

}  // namespace gantry::memory
