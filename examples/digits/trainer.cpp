#include "trainer.hpp"

#include <algorithm>

namespace digits {

using gantry::Tensor;

Trainer::Trainer(const Settings& settings, const Split& data, Exchange& exchange)
    : settings_(settings), exchange_(exchange), samples_(data.train.size()) {
  for (const gantry::Device device : exchange.devices()) {
    train_.push_back(data.train.to(device));
    models_.emplace_back(settings.hidden, settings.seed, device);
  }
  test_ = data.test.to(exchange.devices().front());
}

double Trainer::train_epoch(int epoch) {
  // Drawn on the CPU from seed and epoch alone: the same order in every process.
  gantry::Generator generator(gantry::Device::cpu(), settings_.seed);
  generator.set_offset(1000 + static_cast<std::uint64_t>(epoch));
  const Tensor order = gantry::randperm(samples_, {}, &generator);
  std::vector<Tensor> orders;
  std::vector<std::vector<Tensor>> losses(models_.size());
  for (const Model& model : models_) orders.push_back(order.to(model.device()));
  for (std::size_t r = 0; r < models_.size(); ++r) {
    losses[r] = {gantry::zeros({}, {.device = models_[r].device()})};
  }

  const std::int64_t replicas = exchange_.replicas();
  for (std::int64_t begin = 0; begin < samples_; begin += settings_.batch) {
    const std::int64_t batch = std::min(settings_.batch, samples_ - begin);
    std::vector<std::vector<Tensor>> gradients;
    for (std::size_t r = 0; r < models_.size(); ++r) {
      const std::int64_t place = exchange_.first_local() + static_cast<std::int64_t>(r);
      const std::int64_t first = batch * place / replicas;
      const std::int64_t last = batch * (place + 1) / replicas;
      const Tensor mine = orders[r].narrow(0, begin + first, last - first);
      const Step step = models_[r].backward(train_[r].pixels.index_select(0, mine),
                                            train_[r].labels.index_select(0, mine), batch);
      losses[r][0].add_(step.loss, static_cast<double>(batch));
      gradients.push_back(step.gradients);
    }
    exchange_.all_reduce(gradients);
    for (std::size_t r = 0; r < models_.size(); ++r) {
      models_[r].update(gradients[r], settings_.rate, settings_.momentum);
    }
  }
  exchange_.all_reduce(losses);
  return losses[0][0].item<double>() / static_cast<double>(samples_);
}

void Trainer::load(const std::vector<Tensor>& state) {
  for (Model& model : models_) model.load(state);
}

double Trainer::test_accuracy() const {
  const Tensor right = models_.front().forward(test_.pixels).argmax(1).eq(test_.labels);
  return right.to(gantry::f64).mean().item<double>();
}

}  // namespace digits
