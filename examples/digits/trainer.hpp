#pragma once

#include <cstdint>
#include <vector>

#include "dataset.hpp"
#include "exchange.hpp"
#include "model.hpp"

namespace digits {

// Choices of one training run; equal on all processes.
struct Settings {
  int epochs = 30;
  std::int64_t batch = 128;  // of all replicas together
  std::int64_t hidden = 256;
  double rate = 0.1;
  double momentum = 0.9;
  std::uint64_t seed = 7;
};

// Data-parallel training: every replica holds the whole training set and takes its share of each
// batch.
class Trainer {
 public:
  Trainer(const Settings& settings, const Split& data, Exchange& exchange);

  // One pass over the training set; returns the mean loss.
  double train_epoch(int epoch);
  // Share of test digits that the first local replica gets right.
  double test_accuracy() const;
  // Samples of one epoch, all replicas together.
  std::int64_t samples() const { return samples_; }
  const std::vector<Model>& models() const { return models_; }
  // Puts every local replica into the state of one: Model::state().
  void load(const std::vector<gantry::Tensor>& state);

 private:
  Settings settings_;
  Exchange& exchange_;
  std::int64_t samples_;
  std::vector<Dataset> train_;  // one for each local replica
  std::vector<Model> models_;
  Dataset test_;
};

}  // namespace digits
