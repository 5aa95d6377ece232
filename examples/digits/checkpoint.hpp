#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace digits {

// Training after a number of epochs: everything that the next epoch depends on.
struct Checkpoint {
  int epoch = 0;
  std::vector<gantry::Tensor> state;  // of one model: Model::state()
};

// Replaces the file in one step: a reader finds the old checkpoint or the new one, never a part.
// Throws: std::runtime_error.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// The checkpoint, with tensors like `shapes` on the CPU; none if there is no file.
// Throws: std::runtime_error if the file is of another model.
std::optional<Checkpoint> read_checkpoint(const std::string& path,
                                          const std::vector<gantry::Tensor>& shapes);

}  // namespace digits
