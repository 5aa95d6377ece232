#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/gantry.hpp>

namespace digits {

// 64 -> hidden -> 10 with ReLU, cross entropy and hand-written derivatives, trained by SGD with
// momentum.
class Model {
 public:
  // Equal seeds give equal weights on every device and platform.
  Model(std::int64_t hidden, std::uint64_t seed, gantry::Device device);

  gantry::Device device() const { return device_; }
  const std::vector<gantry::Tensor>& parameters() const { return parameters_; }

  // Scores [n, 10] of images [n, 64].
  gantry::Tensor forward(const gantry::Tensor& pixels) const;
  // Writes the gradients of the batch's mean loss from this shard of it; `batch` is the size of the
  // whole. Calls ready(i) as soon as gradient i is written, the last layer's first. Returns this
  // shard's part of the loss, 0-dim. All on the model's device, nothing waited for.
  gantry::Tensor backward(const gantry::Tensor& pixels, const gantry::Tensor& labels,
                          std::int64_t batch, const std::function<void(std::size_t)>& ready);
  // In the order of parameters(); the same tensors in every step.
  const std::vector<gantry::Tensor>& gradients() const { return gradients_; }
  // One step of SGD: v = momentum v + g; p -= rate v.
  void update(double rate, double momentum);
  // Weights, then velocities.
  std::vector<gantry::Tensor> state() const;
  // Takes over what state() of another model of this size told.
  void load(const std::vector<gantry::Tensor>& state);
  // A number made of every bit of the weights (FNV-1a).
  std::uint64_t checksum() const;

 private:
  gantry::Device device_;
  std::vector<gantry::Tensor> parameters_;  // w1 [64, h], b1 [h], w2 [h, 10], b2 [10]
  std::vector<gantry::Tensor> gradients_;
  std::vector<gantry::Tensor> velocities_;
};

}  // namespace digits
