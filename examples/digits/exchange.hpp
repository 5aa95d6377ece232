#pragma once

#include <memory>
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

  // Replaces every local replica's tensors by the sums over all replicas. lists[r][i] is tensor i
  // of local replica r.
  virtual void all_reduce(std::vector<std::vector<gantry::Tensor>>& lists) = 0;
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
