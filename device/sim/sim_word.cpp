#include "device/sim/sim_word.hpp"

#include <fmt/format.h>

#include <atomic>
#include <string>

#include "device/sim/sim_driver.hpp"
#include "device/sim/sim_error.hpp"

namespace gantry::sim {

void WordTable::write(SimStream& stream, std::uint32_t* word, std::uint32_t value) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t ticket = stream.submit(
      [word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); },
      {.always = true, .mark = true});
  records_[word] = {&stream, ticket, value};
}

WordRecord WordTable::last(const std::uint32_t* word) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(word);
  return found == records_.end() ? WordRecord{} : found->second;
}

bool SimDriver::supports_stream_words(int device) {
  (void)device_of(device, fmt::format("asking cuda:{} for words of streams", device));
  return true;
}

void SimDriver::write_word(NativeStream stream, std::uint32_t* word, std::uint32_t value) {
  SimStream& s = stream_of(stream, "writing a word");
  captures_.refuse_outside_event(s, "writing a word on " + s.name());
  words_.write(s, word, value);
}

void SimDriver::wait_word(NativeStream stream, const std::uint32_t* word, std::uint32_t value) {
  SimStream& s = stream_of(stream, "waiting for a word");
  const std::string doing = "waiting for a word on " + s.name();
  captures_.refuse_outside_event(s, doing);
  const WordRecord record = words_.last(word);
  // Counts may go round, so that only the distance tells which of two is later.
  if (record.stream == nullptr || static_cast<std::int32_t>(record.value - value) < 0) {
    fail(kInvalidValue, doing, s.device(), fmt::format("nobody writes {} there", value));
  }
  if (record.stream == &s) return;
  s.submit(
      [other = record.stream, ticket = record.ticket] {
        other->wait(ticket);
        other->acquire(ticket);
      },
      {.always = true});
}

}  // namespace gantry::sim
