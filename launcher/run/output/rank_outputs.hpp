#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "launcher/run/events/event_loop.hpp"
#include "launcher/run/output/output.hpp"
#include "launcher/run/output/stream.hpp"

namespace gantry::launcher {

/// The pipes that the ranks write to, read as they fill.
class RankOutputs {
 public:
  /// Both must outlive this.
  RankOutputs(EventLoop& loop, Output& output) : loop_(loop), output_(output) {}

  /// Begins with so many ranks, all of whose pipes are closed.
  void reset(std::size_t ranks);
  /// Takes over the read end of a pipe, and reads it when the loop finds something there.
  void watch(int rank, Stream stream, int fd);
  /// Reads once, without waiting. Closes the pipe at its end.
  void read(int rank, Stream stream);
  /// Reads all that is there without waiting, and closes the pipes of a rank.
  void close(int rank);

 private:
  UniqueFd& pipe(int rank, Stream stream) {
    return pipes_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(stream)];
  }
  void close(int rank, Stream stream);

  EventLoop& loop_;
  Output& output_;
  std::vector<std::array<UniqueFd, 2>> pipes_;
};

}  // namespace gantry::launcher
