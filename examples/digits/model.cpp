#include "model.hpp"

#include <cmath>

namespace digits {

using gantry::Tensor;

namespace {

constexpr std::int64_t kInputs = 64;
constexpr std::int64_t kClasses = 10;

// Uniform on ±sqrt(6 / inputs), the range that keeps the variance of a ReLU layer (He et al.,
// 2015).
Tensor initial_weights(std::int64_t inputs, std::int64_t outputs, gantry::Generator& generator) {
  const double bound = std::sqrt(6.0 / static_cast<double>(inputs));
  return gantry::empty({inputs, outputs}).uniform_(-bound, bound, &generator);
}

}  // namespace

Model::Model(std::int64_t hidden, std::uint64_t seed, gantry::Device device) : device_(device) {
  gantry::Generator generator(gantry::Device::cpu(), seed);
  parameters_ = {initial_weights(kInputs, hidden, generator).to(device),
                 gantry::zeros({hidden}, {.device = device}),
                 initial_weights(hidden, kClasses, generator).to(device),
                 gantry::zeros({kClasses}, {.device = device})};
  for (const Tensor& parameter : parameters_) {
    gradients_.push_back(gantry::zeros_like(parameter));
    velocities_.push_back(gantry::zeros_like(parameter));
  }
}

Tensor Model::forward(const Tensor& pixels) const {
  const Tensor hidden = gantry::addmm(parameters_[1], pixels, parameters_[0]).relu();
  return gantry::addmm(parameters_[3], hidden, parameters_[2]);
}

Tensor Model::backward(const Tensor& pixels, const Tensor& labels, std::int64_t batch,
                       const std::function<void(std::size_t)>& ready) {
  const auto set = [&](std::size_t i, const Tensor& gradient) {
    gradients_[i].copy_(gradient);
    ready(i);
  };
  const Tensor hidden = gantry::addmm(parameters_[1], pixels, parameters_[0]).relu();
  const Tensor scores = gantry::addmm(parameters_[3], hidden, parameters_[2]);
  const double weight = 1.0 / static_cast<double>(batch);

  const Tensor log_probabilities = scores.log_softmax(1);
  const Tensor picked = log_probabilities.gather(1, labels.unsqueeze(1));
  const Tensor classes = gantry::arange(kClasses, {.dtype = gantry::i64, .device = device_});
  const Tensor truth = labels.unsqueeze(1).eq(classes).to(gantry::f32);

  const Tensor d_scores = (log_probabilities.exp() - truth) * weight;
  set(3, d_scores.sum(0));
  set(2, hidden.t().matmul(d_scores));
  const Tensor d_hidden = d_scores.matmul(parameters_[2].t()) * hidden.gt(0).to(gantry::f32);
  set(1, d_hidden.sum(0));
  set(0, pixels.t().matmul(d_hidden));
  return picked.sum() * -weight;
}

void Model::update(double rate, double momentum) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    velocities_[i].mul_(momentum).add_(gradients_[i]);
    parameters_[i].sub_(velocities_[i], rate);
  }
}

std::vector<Tensor> Model::state() const {
  std::vector<Tensor> state = parameters_;
  state.insert(state.end(), velocities_.begin(), velocities_.end());
  return state;
}

void Model::load(const std::vector<Tensor>& state) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].copy_(state[i]);
    velocities_[i].copy_(state[parameters_.size() + i]);
  }
}

std::uint64_t Model::checksum() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Tensor& parameter : parameters_) {
    for (const std::uint8_t byte : parameter.view(gantry::u8).to_vector<std::uint8_t>()) {
      hash = (hash ^ byte) * 0x100000001b3;
    }
  }
  return hash;
}

}  // namespace digits
