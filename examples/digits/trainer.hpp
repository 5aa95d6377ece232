#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "dataset.hpp"
#include "exchange.hpp"
#include "model.hpp"
#include "step_graph.hpp"

namespace digits {

// Choices of one training run; equal on all processes.
struct Settings {
  int epochs = 30;
  std::int64_t batch = 128;  // of all replicas together
  std::int64_t hidden = 256;
  double rate = 0.1;
  double momentum = 0.9;
  std::uint64_t seed = 7;
  bool graph = false;  // steps are replays of one graph for each size of a batch
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
  // Steps that were replays of graphs.
  std::int64_t replays() const { return replays_; }
  const std::vector<Model>& models() const { return models_; }
  // Puts every local replica into the state of one: Model::state().
  void load(const std::vector<gantry::Tensor>& state);

 private:
  // The samples of a step, which a graph reads at the same addresses in every replay.
  struct Batch {
    std::int64_t size = 0;                  // of all replicas together
    std::vector<gantry::Tensor> samples;    // of each local replica
    std::unique_ptr<StepGraph> graph = {};  // captured at the second step
    bool ran = false;
  };

  // Picks this process's samples of a batch out of the epoch's order.
  Batch& select(const std::vector<gantry::Tensor>& orders, std::int64_t begin, std::int64_t size);
  // One step on the batch, as a graph if the settings say so.
  void run(Batch& batch);
  void step(const Batch& batch);

  Settings settings_;
  Exchange& exchange_;
  std::int64_t samples_;
  std::vector<Dataset> train_;  // one for each local replica
  std::vector<Model> models_;
  Dataset test_;
  std::vector<gantry::Tensor> losses_;     // of the epoch, for each local replica
  std::map<std::int64_t, Batch> batches_;  // by size
  std::int64_t replays_ = 0;
};

}  // namespace digits
