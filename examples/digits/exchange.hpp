#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace digits {

// How replicas of the model talk: all in this process, or one in each process of a job. Both add in
// replica order, so training gives the same bits either way.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // "one process, comm::*" or "4 processes under mpirun, p2p".
  virtual std::string describe() const = 0;
  // Replicas of the whole job, and those that live in this process with their places and devices.
  virtual int replicas() const = 0;
  virtual int first_local() const = 0;
  virtual const std::vector<gantry::Device>& devices() const = 0;
  // One process prints.
  bool speaks() const { return first_local() == 0; }

  // Replaces every local replica's tensor by the sum over all replicas.
  virtual void all_reduce(std::span<gantry::Tensor> tensors) = 0;
  // Names the gradients of the steps. gradients[r][i] is gradient i of local replica r.
  virtual void set_gradients(const std::vector<std::vector<gantry::Tensor>>& gradients) = 0;
  // Gradient i of local replica r is written on the current stream. Its sum may begin.
  virtual void ready(std::size_t replica, std::size_t gradient) = 0;
  // Ends a step: later work reads the sums over all replicas.
  virtual void finish() = 0;
  // Every replica's line of text, in order.
  virtual std::vector<std::string> all_gather(const std::vector<std::string>& local) = 0;

  // Makes the job whole again after an operation threw `error`: waits for the replacements of the
  // ranks that are lost. Only under glaunch --elastic; else throws `error`.
  virtual void recover(const gantry::PeerLostError& error) { throw error; }
};

// The exchange that fits how this process was started. `limit` > 0 uses at most so many devices in
// one process.
std::unique_ptr<Exchange> make_exchange(int limit);

}  // namespace digits
