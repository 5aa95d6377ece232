#include "step_graph.hpp"

namespace digits {

StepGraph::StepGraph(const std::vector<gantry::Device>& devices,
                     const std::function<void()>& step) {
  const gantry::DeviceGuard first(devices.front());
  gantry::GraphCapture capture(graph_, {.devices = devices});
  step();
  capture.end();
}

void StepGraph::replay() { graph_.replay(); }

}  // namespace digits
