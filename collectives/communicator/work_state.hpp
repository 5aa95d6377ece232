#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include <gantry/collectives/work.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

class CallLedger;

// The shared state of the handles of one operation.
struct Work::State {
  Device device;
  std::shared_ptr<Event> done;
  // The stream of a call that was captured into a graph, where `done` is recorded in the capture.
  std::optional<Stream> captured_on{};
  std::uint64_t capture = 0;  // Driver::capture_id of that capture
  // The calls of the operation, which have consecutive numbers, in the ledger of their group; null:
  // no other rank takes part.
  std::shared_ptr<CallLedger> ledger;
  std::uint64_t first_call = 0;
  std::uint64_t last_call = 0;
  bool reports_losses = true;  // see End
  std::exception_ptr failure;  // of an operation that was not submitted
  bool is_open = false;        // its group() scope is open

  // Throws the error of the operation, if it failed. `pending`: it still runs.
  void check(bool pending) const;
  // Marks the end of the call in `stream`, also in a capture.
  void mark_end(const Stream& stream);
  // True while the capture of the call goes on.
  [[nodiscard]] bool is_in_capture() const;
};

}  // namespace gantry
