#include "kernels/host/indexing/index_fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <gantry/core/error.hpp>

#include "kernels/host/host_fma.hpp"
#include "kernels/strided_index.hpp"

namespace gantry::kernels::host {

void report_fault(const IndexingPlan& plan, std::int64_t index) {
  if (plan.rule == IndexRule::offsets) return;
  if (plan.fault == nullptr) {
    throw IndexError(fmt::format("{}: index {} is out of bounds for dimension {} with size {}",
                                 plan.op, index, plan.dim, plan.index_size),
                     "cpu");
  }
  static std::mutex reporting;  // several streams of a device may fault at the same time
  const std::lock_guard lock(reporting);
  const std::atomic_ref raised(plan.fault->raised);
  if (raised.load(std::memory_order_acquire) != 0) return;
  plan.fault->dim = plan.dim;
  plan.fault->index = index;
  plan.fault->size = plan.index_size;
  plan.fault->op = plan.op;
  raised.store(1, std::memory_order_release);
}

void check_indices(const IndexingPlan& plan, const TensorRef& index) {
  if (plan.rule == IndexRule::offsets) return;
  StridedIndex positions;
  for (int d = 0; d < index.ndim; ++d) positions.append(index.sizes[d], index.strides[d]);
  const IndexReader indices(plan);
  const std::int64_t count = positions.count();
  const int inner = positions.ndim - 1;
  const std::int64_t length = inner < 0 ? 1 : positions.sizes[inner];
  const std::int64_t stride = inner < 0 ? 0 : positions.strides[inner];
  std::int64_t found[kPositions];
  for (std::int64_t first = 0; first < count; first += length) {
    const std::int64_t begin = positions.offset(first);
    for (std::int64_t done = 0; done < length; done += kPositions) {
      const auto n = static_cast<int>(std::min<std::int64_t>(kPositions, length - done));
      const std::int64_t at = begin + done * stride;
      bool inside = true;
      with_fma([&] { inside = indices.read(found, at, stride, n); });
      if (!inside) report_faults(plan, found, at, stride, n);
    }
  }
}

}  // namespace gantry::kernels::host
