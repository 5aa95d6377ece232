#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/process_stamp.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// The flight file of a group, mapped by one of its ranks. It has a name in the user's folder of
// flight files, so that it can be read by others and after a crash; or none, where that folder
// cannot be used.
class ControlFile {
 public:
  // What a rank does with the file once it is mapped, and takes back if another rank fails.
  struct Use {
    std::function<void(const flight::View&)> begin;
    std::function<void(const flight::View&)> end;  // throws nothing
  };

  // Collective over `bootstrap`: either every rank has it and has begun to use it, or every rank
  // throws. Throws: PeerLostError, TimeoutError, Error.
  ControlFile(Bootstrap& bootstrap, int rank, int size, std::chrono::milliseconds timeout,
              std::string_view group, const Use& use);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  const flight::View& view() const { return view_; }
  // By rank.
  const std::vector<ProcessStamp>& processes() const { return processes_; }
  // Between writing to the file and what it tells others, and between reading it and believing it.
  // Ranks of one process map the file at different addresses; race detectors see no order there.
  static void pass_on() noexcept { order_.fetch_add(1, std::memory_order_release); }
  static void take_over() noexcept { (void)order_.load(std::memory_order_acquire); }
  // Takes the name away; what is mapped stays.
  void remove() noexcept;

 private:
  static inline std::atomic<std::uint64_t> order_{0};

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  flight::View view_;
  std::vector<ProcessStamp> processes_;
};

}  // namespace gantry
