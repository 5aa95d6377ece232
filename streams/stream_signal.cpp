#include "streams/stream_signal.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <optional>

#include <gantry/device/driver.hpp>
#include <gantry/streams/event.hpp>

#include "streams/stream_clock.hpp"

namespace gantry {

namespace {

// Waits of fewer other devices' streams do not make up for the write.
constexpr std::ptrdiff_t kFewestWaits = 2;

// A word with a cache line of its own; nullptr without pinned memory.
std::uint32_t* new_word() {
  constexpr std::size_t kStep = 64;
  constexpr std::size_t kPage = 4096;
  static std::mutex mutex;
  static std::byte* free = nullptr;
  static std::size_t left = 0;
  const std::lock_guard lock(mutex);
  if (left == 0) {
    free = static_cast<std::byte*>(driver().allocate_pinned(kPage));
    if (free == nullptr) return nullptr;
    std::memset(free, 0, kPage);
    left = kPage / kStep;
  }
  auto* const word = reinterpret_cast<std::uint32_t*>(free);
  free += kStep;
  --left;
  return word;
}

bool takes_words(const Stream& stream) {
  constexpr std::size_t kDevices = 64;
  static std::array<std::atomic<signed char>, kDevices> known{};  // 0: not asked yet
  const auto index = static_cast<std::size_t>(stream.native().device);
  if (index >= kDevices) return false;
  signed char answer = known[index].load(std::memory_order_relaxed);
  if (answer == 0) {
    answer = driver().supports_stream_words(stream.native().device) ? 1 : -1;
    known[index].store(answer, std::memory_order_relaxed);
  }
  return answer > 0 && !driver().is_capturing(stream.native());
}

}  // namespace

StreamSignal::StreamSignal() : word_(new_word()) {}

bool StreamSignal::release(const Stream& stream, std::span<const Stream> others) {
  if (word_ == nullptr || !takes_words(stream)) return false;
  if (!std::all_of(others.begin(), others.end(), takes_words)) return false;
  const auto mark = borrow_mark();
  std::uint32_t value = 0;
  {
    const std::lock_guard lock(mutex_);
    StreamClock::of(stream).begin_mark(*mark);
    driver().write_word(stream.native(), word_, last_ + 1);
    value = ++last_;
  }
  for (const Stream& other : others) {
    if (other == stream) continue;
    driver().wait_word(other.native(), word_, value);
    StreamClock::of(other).join(*mark);
  }
  return true;
}

void release_streams(const Stream& stream, std::span<const Stream> others) {
  const auto waits = std::count_if(others.begin(), others.end(), [&](const Stream& other) {
    return other.native().device != stream.native().device;
  });
  if (waits >= kFewestWaits) {
    // A retired clock's handle may be many streams, which would count in no order.
    StreamClock& clock = StreamClock::of(stream);
    if (!clock.is_retired() && clock.signal().release(stream, others)) return;
  }
  std::optional<Event> reached;
  for (const Stream& other : others) {
    if (other == stream) continue;
    if (!reached) reached = stream.record();
    other.wait(*reached);
  }
}

}  // namespace gantry
