#include "step_graph.hpp"

#include <memory>

namespace digits {

using gantry::Stream;

StepGraph::StepGraph(const std::vector<gantry::Device>& devices, const std::function<void()>& step)
    : devices_(devices) {
  const gantry::DeviceGuard device(devices.front());
  gantry::GraphCapture capture(graph_);
  // The other devices' streams join the capture, and the capture's stream waits for them at its
  // end.
  std::vector<Stream> others;
  std::vector<std::unique_ptr<gantry::StreamGuard>> guards;
  for (std::size_t i = 1; i < devices.size(); ++i) {
    others.push_back(Stream::from_pool(devices[i]));
    others.back().wait(capture.stream());
    guards.push_back(std::make_unique<gantry::StreamGuard>(others.back()));
  }
  {
    const gantry::DeviceGuard first(devices.front());
    step();
  }
  for (const Stream& other : others) capture.stream().wait(other);
  while (!guards.empty()) guards.pop_back();  // the last one first
  capture.end();
}

void StepGraph::replay() {
  const Stream first = Stream::current(devices_.front());
  for (const gantry::Device device : devices_) {
    if (device != devices_.front()) first.wait(Stream::current(device));
  }
  graph_.replay();
  for (const gantry::Device device : devices_) {
    if (device != devices_.front()) Stream::current(device).wait(first);
  }
}

}  // namespace digits
