#include <gantry/tensor/graphed.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/random.hpp>

#include "device/checked_device_index.hpp"
#include "streams/capture.hpp"
#include "tensor/check.hpp"

namespace gantry {
namespace {

// Throws unless `input` can take the place of `sample`.
void check_like(std::size_t i, const Tensor& input, const Tensor& sample) {
  const std::string name = fmt::format("inputs[{}]", i);
  detail::check_defined("graphed", name, input);
  if (input.device() != sample.device()) {
    throw DeviceMismatchError(fmt::format("graphed: expected {} on {}, but got it on {}", name,
                                          sample.device().str(), input.device().str()));
  }
  if (input.dtype() != sample.dtype()) {
    throw DTypeError(fmt::format("graphed: expected {} of type {}, but got {}", name,
                                 torch_name(sample.dtype()), torch_name(input.dtype())));
  }
  if (input.sizes() != sample.sizes()) {
    throw ShapeError(fmt::format("graphed: expected {} of sizes {}, but got {}", name,
                                 sample.sizes().str(), input.sizes().str()));
  }
}

Device device_of(std::span<const Tensor> samples) {
  if (samples.empty()) {
    throw InvalidArgument("make_graphed: expected at least one sample, but got none");
  }
  detail::check_defined("make_graphed", "samples[0]", samples[0]);
  const Device device = samples[0].device();
  if (device.is_cpu()) {
    throw InvalidArgument("make_graphed: expected samples on a device, but got them on the CPU");
  }
  for (std::size_t i = 1; i < samples.size(); ++i) {
    detail::check_defined("make_graphed", fmt::format("samples[{}]", i), samples[i]);
    if (samples[i].device() == device) continue;
    throw DeviceMismatchError(
        fmt::format("make_graphed: expected all samples on {}, but got samples[{}] on {}",
                    device.str(), i, samples[i].device().str()));
  }
  return device;
}

// The devices that the function works on: first that of the samples. Throws for a device that does
// not exist.
std::vector<Device> devices_of(Device first, const std::vector<Device>& others) {
  std::vector<Device> devices = {first};
  for (const Device device : others) {
    const Device other = Device::cuda(checked_device_index(device, "make_graphed"));
    if (std::ranges::find(devices, other) == devices.end()) devices.push_back(other);
  }
  return devices;
}

}  // namespace

struct Graphed::State {
  Graph graph;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::optional<Stream> last_replay;
};

void Graphed::Destroy::operator()(State* state) const noexcept { delete state; }

Graphed::Graphed(const Function& function, std::span<const Tensor> samples,
                 const GraphedOptions& options)
    : state_(std::unique_ptr<State, Destroy>(new State)) {
  if (options.warm_up < 0) {
    throw InvalidArgument(
        fmt::format("make_graphed: expected warm_up >= 0, but got {}", options.warm_up));
  }
  const Device device = device_of(samples);
  const std::vector<Device> devices = devices_of(device, options.devices);
  const DeviceGuard guard(device);
  State& state = state_.of("Graphed::Graphed");
  for (const Tensor& sample : samples) state.inputs.push_back(sample.clone());
  std::vector<Tensor> generators;
  for (const Device each : devices) generators.push_back(get_rng_state(each));
  const auto restore = [&] {
    for (std::size_t i = 0; i < devices.size(); ++i) set_rng_state(generators[i], devices[i]);
  };
  const Stream stream = Stream::from_pool(device);
  stream.wait(Stream::current(device));
  try {
    const StreamGuard side(stream);
    for (int run = 0; run < options.warm_up; ++run) static_cast<void>(function(state.inputs));
    for (const Device each : devices) Stream::current(each).synchronize();
  } catch (...) {
    restore();
    throw;
  }
  restore();
  GraphCapture capture(state.graph,
                       {.pool = options.pool, .stream = stream, .devices = options.devices});
  state.outputs = function(state.inputs);
  capture.end();
}

const std::vector<Tensor>& Graphed::operator()(std::span<const Tensor> inputs) {
  State& state = state_.of("Graphed::operator()");
  if (inputs.size() != state.inputs.size()) {
    throw InvalidArgument(
        fmt::format("graphed: expected {} inputs, but got {}", state.inputs.size(), inputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) check_like(i, inputs[i], state.inputs[i]);
  const Stream stream = Stream::current(state.graph.device());
  const bool is_captured = gantry::is_captured(stream.native());
  // The last replay may still read the inputs that are copied here. A capture copies nothing now.
  if (!is_captured && state.last_replay && *state.last_replay != stream) {
    stream.wait(*state.last_replay);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].data_ptr() != state.inputs[i].data_ptr()) state.inputs[i].copy_(inputs[i]);
  }
  state.graph.replay();
  if (!is_captured) state.last_replay = stream;
  return state.outputs;
}

const Graph& Graphed::graph() const { return state_.of("Graphed::graph").graph; }

}  // namespace gantry
