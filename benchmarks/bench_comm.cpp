#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {

void register_comm() {
  const std::vector<Device> devices = all_devices();
  const auto n = static_cast<std::int64_t>(devices.size());
  const bool simulated = platform() == Platform::simulated;
  for (const std::int64_t bytes :
       {std::int64_t{4} << 10, std::int64_t{64} << 10, std::int64_t{1} << 20,
        std::int64_t{16} << 20, std::int64_t{256} << 20}) {
    if (simulated && bytes > (16 << 20)) continue;
    const int calls = bytes > (1 << 20) ? 10 : 50;
    const std::string size = std::to_string(bytes);
    const Shape shape{bytes / 4};
    add("comm/broadcast/" + size, [=](benchmark::State& state) {
      const Tensor source = ones(shape, {.device = devices[0]});
      time_completion(state, calls, [&] { (void)comm::broadcast(source, devices); });
    });
    add("comm/reduce_add/" + size, [=](benchmark::State& state) {
      std::vector<Tensor> inputs;
      for (const Device device : devices) inputs.push_back(ones(shape, {.device = device}));
      time_completion(state, calls, [&] { (void)comm::reduce_add(inputs, devices[0]); });
    });
    add("comm/scatter/" + size, [=](benchmark::State& state) {
      const Tensor source = ones(shape, {.device = devices[0]});
      time_completion(state, calls, [&] { (void)comm::scatter(source, devices); });
    });
    add("comm/gather/" + size, [=](benchmark::State& state) {
      std::vector<Tensor> inputs;
      for (const Device device : devices) {
        inputs.push_back(ones({bytes / 4 / n}, {.device = device}));
      }
      time_completion(state, calls,
                      [&] { (void)comm::gather(inputs, {.destination = devices[0]}); });
    });
  }
  // 200 tensors of about 4 KB, as the gradients of a deep model's small layers.
  add("comm/broadcast_coalesced/200x4KB", [=](benchmark::State& state) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 200; ++i) tensors.push_back(ones({1000 + i}, {.device = devices[0]}));
    time_completion(state, 5, [&] { (void)comm::broadcast_coalesced(tensors, devices); });
  });
  add("comm/reduce_add_coalesced/200x4KB", [=](benchmark::State& state) {
    std::vector<std::vector<Tensor>> lists;
    for (const Device device : devices) {
      lists.emplace_back();
      for (int i = 0; i < 200; ++i) lists.back().push_back(ones({1000 + i}, {.device = device}));
    }
    time_completion(state, 5, [&] { (void)comm::reduce_add_coalesced(lists, devices[0]); });
  });
}

}  // namespace gantry::benchmarks
