// A plug-in of a program that knows nothing of gantry: C entries, and gantry behind them.
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include <gantry/gantry.hpp>

namespace {

using namespace gantry;

bool holds_sum(const Tensor& tensor, int ranks) {
  const auto values = tensor.to_vector<float>();
  const float expected = static_cast<float>(ranks * (ranks + 1)) / 2;
  for (const float value : values) {
    if (value != expected) return false;
  }
  return !values.empty();
}

// Sums tensors of 1, 2, … with a thread per rank, then with one call in one thread.
void all_reduce(int ranks) {
  std::vector<Device> devices;
  for (int i = 0; i < ranks; ++i) devices.push_back(Device::cuda(i));
  std::vector<Communicator> group = Communicator::local(devices);
  std::vector<std::exception_ptr> errors(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Tensor mine = full({1000}, static_cast<float>(rank + 1), devices[rank]);
        group[rank].all_reduce(mine);
        if (!holds_sum(mine, ranks)) throw Error("Communicator::all_reduce: the sum is wrong");
      } catch (...) {
        errors[rank] = std::current_exception();
        group[rank].abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  std::vector<Tensor> tensors;
  for (int i = 0; i < ranks; ++i) {
    tensors.push_back(full({1000}, static_cast<float>(i + 1), Device::cuda(i)));
  }
  comm::all_reduce(tensors);
  for (const Tensor& tensor : tensors) {
    if (!holds_sum(tensor, ranks)) throw Error("comm::all_reduce: the sum is wrong");
  }
}

}  // namespace

/// The number of visible devices.
extern "C" int plugin_device_count() { return gantry::device_count(); }

/// Sums over `ranks` devices and records the history of its memory. 0, or 1 after a message.
extern "C" int plugin_all_reduce(int ranks) {
  try {
    gantry::memory::record_history();
    all_reduce(ranks);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugin_all_reduce: %s\n", error.what());
    return 1;
  }
}
