// Calls whose arrays are in page-locked memory of the host.
#pragma once

#include <gantry/tensor/tensor.hpp>

#include "compat/nccl/operation.hpp"

namespace gantry::nccl_api {

// Memory of the device in the place of a call's arrays in memory of the host. Kernels of peers
// cannot read such an array, and the rank's own would read it over PCIe.
class HostArrays {
 public:
  // True if this rank has an array of the host.
  static bool has_any(const Arrays& arrays);
  // Puts arrays of the device into `call` and `arrays`, on the call's stream. Throws:
  // OutOfMemoryError.
  HostArrays(Operation& call, Arrays& arrays, Device device);

  // Enqueues the copy of what the call reads, on the current stream.
  void copy_in() const;
  // Enqueues the copy of what the call has written, on the current stream.
  void copy_out() const;

 private:
  struct Copy {
    Tensor host;
    Tensor device;
  };
  Copy send_;
  Copy recv_;
};

}  // namespace gantry::nccl_api
