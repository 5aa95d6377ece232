// Words that streams write and wait for.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "device/sim/sim_stream.hpp"

namespace gantry::sim {

/// The last write to a word.
struct WordRecord {
  SimStream* stream = nullptr;
  std::uint64_t ticket = 0;
  std::uint32_t value = 0;
};

/// What was written where, by address. Thread safety: any host thread.
class WordTable {
 public:
  /// Appends a task to `stream` that stores `value`.
  void write(SimStream& stream, std::uint32_t* word, std::uint32_t value);
  /// The last write; its stream is nullptr if there was none.
  [[nodiscard]] WordRecord last(const std::uint32_t* word) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const std::uint32_t*, WordRecord> records_;
};

}  // namespace gantry::sim
