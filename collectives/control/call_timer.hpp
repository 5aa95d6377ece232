#pragma once

#include <cstdint>

#include "job/flight_file.hpp"

namespace gantry {

// The time for which a rank's device has been inside one run of a call.
// Thread safety: none.
class CallTimer {
 public:
  // Adds `elapsed_ns` if `progress` shows the run of the last update; else starts from zero.
  // Returns the time so far; 0 if no call is in progress.
  std::int64_t update(const flight::Progress& progress, std::int64_t elapsed_ns) {
    const bool is_same = is_running_ && call_ == progress.started && run_ == progress.run;
    is_running_ = progress.is_under_way();
    call_ = progress.started;
    run_ = progress.run;
    waited_ns_ = is_same && is_running_ ? waited_ns_ + elapsed_ns : 0;
    return waited_ns_;
  }

 private:
  bool is_running_ = false;
  std::uint64_t call_ = 0;
  std::uint32_t run_ = 0;
  std::int64_t waited_ns_ = 0;
};

}  // namespace gantry
