// A group of control segments in this process, one per rank, and the words that kernels write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/control/segment.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::testing {

/// All ranks of a group in this process.
class ControlGroup {
 public:
  explicit ControlGroup(int size,
                        std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000))
      : bootstraps_(make_local_bootstraps(size)), segments_(static_cast<std::size_t>(size)) {
    rank_threads(size, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      segments_[i] = std::make_unique<ControlSegment>(*bootstraps_[i], rank, size, timeout, "test");
    });
  }

  ControlSegment& operator[](int rank) { return *segments_[static_cast<std::size_t>(rank)]; }
  Bootstrap& bootstrap(int rank) { return *bootstraps_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(segments_.size()); }
  void reset() { segments_.clear(); }

  void start(int rank, std::uint64_t call, std::uint64_t run = 0) {
    set((*this)[rank].device_words()->started, run_word(call, run));
    set((*this)[rank].device_words()->finished, run_word(call - 1, run));
  }
  void end(int rank, std::uint64_t call, std::uint64_t run = 0) {
    set((*this)[rank].device_words()->finished, run_word(call, run));
  }
  /// What a kernel of `rank` does when `peer` called something else.
  void report(int rank, OperationFault fault, std::uint64_t call, int peer,
              std::uint32_t sequence = 0) {
    DeviceWords& words = *(*this)[rank].device_words();
    set(words.fault_call, call);
    words.fault_peer = peer;
    set(words.fault, fault_word(fault, sequence));
  }

 private:
  template <class Word>
  static void set(Word& word, Word value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }

  std::vector<std::unique_ptr<Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<ControlSegment>> segments_;
};

/// The text of the `Exception` that `action` throws; empty if it throws nothing.
template <class Exception, class Action>
std::string text_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace gantry::testing
