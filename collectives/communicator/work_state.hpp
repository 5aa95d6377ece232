#pragma once

#include <functional>
#include <memory>

#include <gantry/collectives/work.hpp>
#include <gantry/streams/event.hpp>

namespace gantry {

// The shared state of the handles of one operation.
struct Work::State {
  Device device;
  std::shared_ptr<Event> done;  // nullptr for a call that was captured into a graph
  // Throws the error of the call, if it failed. `pending`: it still runs. May be empty.
  std::function<void(bool pending)> check;
  bool is_open = false;  // its group() scope is open
};

}  // namespace gantry
