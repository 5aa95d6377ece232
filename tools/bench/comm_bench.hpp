// Measures the single-process operations of gantry::comm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/device/device.hpp>

#include "tools/bench/report.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::bench {

/// Names of the forms: broadcast, broadcast_out, reduce_add, …, reduce_add_coalesced.
[[nodiscard]] const std::vector<std::string>& comm_forms();

/// One size of one form.
struct CommCase {
  std::string form;
  DType dtype = f32;
  ReduceOp op = ReduceOp::sum;  ///< of all_reduce and reduce_scatter
  std::int64_t bytes = 0;       ///< of the whole tensor, or of all tensors of a coalesced form
  int tensors = 200;            ///< of a coalesced form
};

/// Measures a case over `devices`, from the calling thread. Checks a first call if `check`.
[[nodiscard]] Row run_comm(const CommCase& what, const std::vector<Device>& devices,
                           const Repetitions& repetitions, bool check);

}  // namespace gantry::bench
