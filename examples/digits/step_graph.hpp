#pragma once

#include <functional>
#include <vector>

#include <gantry/gantry.hpp>

namespace digits {

// One training step of all local replicas, with its collectives, as one graph.
class StepGraph {
 public:
  // Captures `step`, whose tensors all live on `devices`. Nothing of it runs.
  StepGraph(const std::vector<gantry::Device>& devices, const std::function<void()>& step);
  // Runs the step after the work of all current streams, which continue after it.
  void replay();

 private:
  gantry::Graph graph_;
};

}  // namespace digits
