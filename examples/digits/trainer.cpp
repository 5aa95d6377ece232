#include "trainer.hpp"

#include <algorithm>
#include <utility>

namespace digits {

using gantry::Tensor;

Trainer::Trainer(const Settings& settings, const Split& data, Exchange& exchange)
    : settings_(settings), exchange_(exchange), samples_(data.train.size()) {
  for (const gantry::Device device : exchange.devices()) {
    train_.push_back(data.train.to(device));
    models_.emplace_back(settings.hidden, settings.seed, device);
  }
  test_ = data.test.to(exchange.devices().front());
  std::vector<std::vector<Tensor>> gradients;
  for (const Model& model : models_) {
    losses_.push_back(gantry::zeros({}, {.device = model.device()}));
    gradients.push_back(model.gradients());
  }
  exchange_.set_gradients(gradients);
}

double Trainer::train_epoch(int epoch) {
  // Drawn on the CPU from seed and epoch alone: the same order in every process.
  gantry::Generator generator(gantry::Device::cpu(), settings_.seed);
  generator.set_offset(1000 + static_cast<std::uint64_t>(epoch));
  const Tensor order = gantry::randperm(samples_, {}, &generator);
  std::vector<Tensor> orders;
  for (const Model& model : models_) orders.push_back(order.to(model.device()));
  for (const Tensor& loss : losses_) loss.zero_();
  for (std::int64_t begin = 0; begin < samples_; begin += settings_.batch) {
    run(select(orders, begin, std::min(settings_.batch, samples_ - begin)));
  }
  exchange_.all_reduce(losses_);
  return losses_.front().item<double>() / static_cast<double>(samples_);
}

Trainer::Batch& Trainer::select(const std::vector<Tensor>& orders, std::int64_t begin,
                                std::int64_t size) {
  Batch& batch = batches_[size];
  batch.size = size;
  const std::int64_t replicas = exchange_.replicas();
  for (std::size_t r = 0; r < models_.size(); ++r) {
    const std::int64_t place = exchange_.first_local() + static_cast<std::int64_t>(r);
    const std::int64_t first = size * place / replicas;
    const std::int64_t last = size * (place + 1) / replicas;
    const Tensor mine = orders[r].narrow(0, begin + first, last - first);
    if (batch.samples.size() == r) batch.samples.push_back(gantry::empty_like(mine));
    batch.samples[r].copy_(mine);
  }
  return batch;
}

void Trainer::run(Batch& batch) {
  // The first step of a size runs eagerly, which loads the libraries that it needs.
  if (!settings_.graph || !std::exchange(batch.ran, true)) return step(batch);
  if (batch.graph == nullptr) {
    batch.graph = std::make_unique<StepGraph>(exchange_.devices(), [&] { step(batch); });
  }
  batch.graph->replay();
  ++replays_;
}

void Trainer::step(const Batch& batch) {
  for (std::size_t r = 0; r < models_.size(); ++r) {
    const Tensor loss =
        models_[r].backward(train_[r].pixels.index_select(0, batch.samples[r]),
                            train_[r].labels.index_select(0, batch.samples[r]), batch.size,
                            [&](std::size_t gradient) { exchange_.ready(r, gradient); });
    losses_[r].add_(loss, static_cast<double>(batch.size));
  }
  exchange_.finish();
  for (Model& model : models_) model.update(settings_.rate, settings_.momentum);
}

void Trainer::load(const std::vector<Tensor>& state) {
  for (Model& model : models_) model.load(state);
}

double Trainer::test_accuracy() const {
  const Tensor right = models_.front().forward(test_.pixels).argmax(1).eq(test_.labels);
  return right.to(gantry::f64).mean().item<double>();
}

}  // namespace digits
