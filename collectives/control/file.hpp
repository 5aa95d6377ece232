#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/processes/process_stamp.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// The flight file of a group, mapped by one of its ranks. It has a name in the user's folder of
// flight files, so that other processes can read it, also after a crash. It has no name if that
// folder cannot be used.
class ControlFile {
 public:
  // Callbacks of a rank: `begin` after the file is mapped, `end` to undo it if another rank fails.
  struct Use {
    std::function<void(const flight::View&)> begin;
    std::function<void(const flight::View&)> end;  // throws nothing
  };

  // Collective over `bootstrap`: every rank maps the file and calls use.begin(), or every rank
  // throws. Throws: PeerLostError, TimeoutError, Error.
  ControlFile(Bootstrap& bootstrap, int rank, int size, std::chrono::milliseconds timeout,
              std::string_view group, const Use& use);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  const flight::View& view() const { return view_; }
  // The processes of the ranks, in rank order.
  const std::vector<ProcessStamp>& processes() const { return processes_; }
  // Order writes to the file before the word that publishes them, and reads after it. Ranks of one
  // process map the file at different addresses, where race detectors see no order.
  static void publish() noexcept { order_.fetch_add(1, std::memory_order_release); }
  static void acquire() noexcept { (void)order_.load(std::memory_order_acquire); }
  // Unlinks the file's name; mappings stay valid.
  void remove() noexcept;

 private:
  static inline std::atomic<std::uint64_t> order_{0};

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  flight::View view_;
  std::vector<ProcessStamp> processes_;
};

}  // namespace gantry
