#pragma once

#include <functional>
#include <memory>

#include <gantry/collectives/work.hpp>
#include <gantry/streams/event.hpp>

namespace gantry {

struct Work::State {
  Device device;
  std::shared_ptr<Event> done;  // nullptr for a call that was captured into a graph
  // Throws what became of the call; told whether it still runs. May be empty.
  std::function<void(bool pending)> check;
  bool is_open = false;  // its group() has not ended
};

}  // namespace gantry
