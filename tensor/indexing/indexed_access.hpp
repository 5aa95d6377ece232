// Reads and writes through index tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include <gantry/tensor/index_plan.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tensor/indexing/index_list.hpp"

namespace gantry::detail {

// Plans the access to a parsed list's elements of a tensor on `device`. Counts the elements of
// masks, for which the host waits. Precondition: at least one indexed dim. Throws: IndexError.
[[nodiscard]] GatherPlan plan_gather(std::string_view op, ParsedIndices parsed, Device device);

// Copies index tensors of the CPU to `device`. The last step of a plan, behind all checks.
void move_indices(GatherPlan& plan, Device device);

// Bytes of the temporary tensors of an access.
[[nodiscard]] std::int64_t temporary_bytes(const GatherPlan& plan);

// True if the elements are all those that one mask selects, so that no index tensor is needed.
[[nodiscard]] bool is_packed(const GatherPlan& plan);

// Copies the elements of `view`, which has the layout of plan.view, to `out`, which is contiguous.
void gather_indexed(const Tensor& out, const Tensor& view, const GatherPlan& plan);

// Writes `source`, of shape plan.sizes, to the elements of `view`.
void scatter_indexed(const Tensor& view, const ScatterPlan& plan, const Tensor& source);

}  // namespace gantry::detail
