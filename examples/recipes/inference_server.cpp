// An inference server with more models than its devices have memory for.
//
// Run: inference_server    (without a GPU: export GANTRY_SIM_DEVICES=4)
//
// A pool releases its memory and keeps its addresses: pointers and graphs stay valid.
#include <gantry/gantry.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using namespace gantry;

constexpr std::int64_t kModels = 5, kResident = 2, kFeatures = 1024;

// 1. The weights are in a pool of their own.
struct Model {
  Model(const Device& device, const Tensor& host_weights) : pool(device) {
    const memory::MemPoolGuard guard(pool);
    weights = host_weights.to(device);
  }
  memory::MemPool pool;
  Tensor weights;
};

struct Request {
  std::size_t model = 0;
  Tensor features;  // [kFeatures] on the CPU
  std::promise<Tensor> result;
};

// 2. A server for each device: requests, and a thread that computes them.
class Server {
 public:
  Server(const Device& device, const std::vector<Tensor>& weights) : device_(device) {
    for (const Tensor& host : weights) make_room_for(models_.emplace_back(device, host));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  std::future<Tensor> submit(std::size_t model, const Tensor& features) {
    const std::lock_guard lock(mutex_);
    has_request_.notify_one();
    return requests_.emplace_back(Request{model, features, {}}).result.get_future();
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_request_.wait(lock, stop, [this] { return !requests_.empty(); })) {
      const std::size_t wanted = requests_.front().model;
      const auto first = std::stable_partition(requests_.begin(), requests_.end(),
                                               [&](auto& one) { return one.model != wanted; });
      std::vector<Request> batch(requests_.end() - first);
      std::move(first, requests_.end(), batch.begin());
      requests_.erase(first, requests_.end());
      lock.unlock();
      make_room_for(models_[wanted]);
      std::vector<Tensor> rows;
      for (const Request& request : batch) rows.push_back(request.features);
      const Tensor results = matmul(stack(rows).to(device_), models_[wanted].weights).cpu();
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i].result.set_value(results[i]);
      lock.lock();
    }
  }
  // 3. At most kResident models have memory: the ones that were used last.
  void make_room_for(Model& wanted) {
    std::erase(resident_, &wanted);
    if (std::ssize(resident_) == kResident) {
      resident_.front()->pool.release_physical({.backup = memory::PoolBackup::host});
      resident_.erase(resident_.begin());
    }
    wanted.pool.restore_physical();  // no effect if it has its memory
    resident_.push_back(&wanted);
  }

  Device device_;
  std::deque<Model> models_;
  std::vector<Model*> resident_;  // by their last use
  std::mutex mutex_;
  std::condition_variable_any has_request_;
  std::vector<Request> requests_;
  std::jthread thread_;  // the last member: it ends first
};

}  // namespace

int main() {
  init();  // throws if there is no device
  const std::vector<Tensor> weights = randn({kModels, kFeatures, kFeatures}).unbind(0);
  std::deque<Server> servers;
  for (const Device& device : devices()) servers.emplace_back(device, weights);

  // 4. Clients use all servers, and compare the results with the CPU.
  const auto run_client = [&](std::size_t client) {
    int right = 0;
    for (std::size_t i = 0; i < 25; ++i) {
      const std::size_t model = (client + i * i) % weights.size();
      const Tensor features = full({kFeatures}, 1.0 / static_cast<double>(client + i + 1));
      const Tensor result = servers[i % servers.size()].submit(model, features).get();
      right += allclose(result, matmul(features, weights[model]), 1e-4, 1e-3) ? 1 : 0;
    }
    return right;
  };
  std::array<std::future<int>, 4> clients;
  for (std::size_t i = 0; i < 4; ++i) clients[i] = std::async(std::launch::async, run_client, i);
  int right = 0;
  for (std::future<int>& client : clients) right += client.get();
  std::cout << (memory::allocated("cuda:0") >> 20) << " MiB of weights in "
            << (memory::reserved("cuda:0") >> 20) << " MiB, right results: " << right << "\n";
  return right == 100 ? 0 : 1;
}
// Output:
// 20 MiB of weights in 10 MiB, right results: 100
