// Elastic training: the job goes on with fewer ranks when one dies, and takes its replacement in.
//
// Run: glaunch --elastic 1:4 --restart-delay 0 elastic_training
// Without a GPU: export GANTRY_SIM_DEVICES=4. Kill one of its processes with kill -9 while it runs.
//
// There are no checkpoints: the ranks that live have the weights. A step has always the same eight
// parts, which the ranks share. So the weights have the same bits, whoever dies.
#include <gantry/gantry.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace gantry;
using namespace std::chrono_literals;

constexpr std::int64_t kParts = 8, kRows = 32, kFeatures = 64;

struct Model {
  Tensor weights;
  std::int64_t steps = 0;
};

// The gradients of some parts of a step: least squares on rows that only the seed decides.
Tensor gradients_of(const Model& model, std::int64_t first, std::int64_t count) {
  const Device device = model.weights.device();
  const Tensor gradients = empty({count, kFeatures}, device);
  for (std::int64_t i = 0; i < count; ++i) {
    Generator generator(device);
    generator.manual_seed(static_cast<std::uint64_t>(model.steps * kParts + first + i));
    const Tensor rows = randn({kRows, kFeatures}, device, generator);
    const Tensor error = (rows * (model.weights - 1)).sum(1, true);  // all true weights are 1
    gradients[i].copy_((rows * error).mean(0));
  }
  return gradients;
}

void update(Model& model, const Tensor& gradients) {
  model.weights.sub_(gradients.mean(0).mul_(0.01));
  ++model.steps;
}

// 1. A step: each rank computes its share of the parts, and gets all of them in one order.
void train_step(const Communicator& group, Model& model) {
  std::vector<std::int64_t> ends{0}, shares;
  for (int rank = 0; rank < group.size(); ++rank) {
    ends.push_back(kParts * (rank + 1) / group.size());
    shares.push_back(ends.back() - ends[static_cast<std::size_t>(rank)]);
  }
  const auto me = static_cast<std::size_t>(group.rank());
  const Tensor all = empty({kParts, kFeatures}, group.device());
  // The host waits, so that a PeerLostError comes before the weights change.
  group.all_gather(all, gradients_of(model, ends[me], shares[me]), shares).synchronize();
  update(model, all);
}

// 2. All ranks take the weights of the rank that has got furthest. A new rank has done no step.
void align(const Communicator& group, Model& model) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : group.all_gather_bytes(std::to_string(model.steps))) {
    steps.push_back(std::stoll(text));
  }
  const auto furthest = std::max_element(steps.begin(), steps.end());
  group.broadcast(model.weights, static_cast<int>(furthest - steps.begin())).synchronize();
  model.steps = *furthest;
  if (group.rank() == 0) {
    std::cout << group.size() << " ranks from step " << model.steps << " on" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t last = argc > 1 ? std::stoll(argv[1]) : 200;
  Communicator group = Communicator::world();  // in a replacement: the group that grow() makes
  const int all = detect_process_identity().world_size;
  Model model{zeros({kFeatures}, group.device())};
  std::vector<int> lost;
  bool is_aligned = false;

  while (model.steps < last || group.size() < all || !is_aligned) {
    try {
      if (!lost.empty()) {  // 3. Shrink: without the ranks that died
        group = group.shrink(lost);
        lost.clear();
        is_aligned = false;
      }
      if (!is_aligned) align(group, model);
      is_aligned = true;
      if (model.steps < last) train_step(group, model);
      if (group.size() < all && (model.steps % 20 == 0 || model.steps == last)) {
        try {  // 4. Grow: if all replacements have come
          group = group.grow(all, model.steps < last ? 50ms : 10'000ms);
          is_aligned = false;
        } catch (const TimeoutError&) {  // not yet: the group is as it was
        }
      }
    } catch (const PeerLostError& error) {
      if (error.rank() < 0) throw;  // not one of this group's
      lost.push_back(error.rank());
    }
  }

  // 5. The same steps without the other ranks. Every rank compares, so that all fail or none.
  Model alone{zeros({kFeatures}, group.device())};
  while (alone.steps < last) update(alone, gradients_of(alone, 0, kParts));
  const bool is_equal = equal(model.weights, alone.weights);
  if (group.rank() == 0) {
    std::cout << last << " steps, equal to one rank alone: " << is_equal << std::endl;
  }
  return is_equal ? 0 : 1;
}
// Output:
// [0] 4 ranks from step 0 on
// [0] 200 steps, equal to one rank alone: 1
