// Searches and bins of one element, shared by the host and the GPU.
#pragma once

#include <cstdint>

#include "kernels/ordering/binning_plan.hpp"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels {

// The result of searchsorted for value `i`.
template <class U>
GANTRY_HD std::int64_t search(const SearchPlan& plan, const KeyOrder<U>& order, std::int64_t i) {
  const U* elements = static_cast<const U*>(plan.sequences) + i / plan.per_sequence * plan.length;
  const U key = order.key(static_cast<const U*>(plan.values)[i]);
  std::int64_t low = 0;
  std::int64_t high = plan.length;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const U element = order.key(elements[middle]);
    if (element < key || (plan.right && element == key)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The bin of element `i` for count_values; at least plan.bins if it has none. A negative element
// becomes a large unsigned one.
template <class T>
struct ValueBin {
  CountPlan plan;

  explicit ValueBin(const CountPlan& of) : plan(of) {}
  GANTRY_HD std::uint64_t operator()(std::int64_t i) const {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<const T*>(plan.in)[i]));
  }
};

// The bin of element `i` for count_bins, in the arithmetic of the dtype, or in f32 for 16-bit
// floats. A range whose products exceed the dtype is divided by a power of two, which is exact.
template <class T>
struct RangeBin {
  using Compute = AccumulatorType<T>;

  const T* in;
  std::uint64_t bins;
  Compute low;
  Compute high;
  Compute scale;
  Compute scaled_low;
  Compute width;

  explicit RangeBin(const CountPlan& plan)
      : in(static_cast<const T*>(plan.in)),
        bins(static_cast<std::uint64_t>(plan.bins)),
        low(static_cast<Compute>(plan.low)),
        high(static_cast<Compute>(plan.high)),
        scale(is_finite((high - low) * static_cast<Compute>(bins)) ? Compute(1) : Compute(0x1p-66)),
        scaled_low(low * scale),
        width(high * scale - scaled_low) {}
  GANTRY_HD std::uint64_t operator()(std::int64_t i) const {
    const auto value = static_cast<Compute>(in[i]);
    if (!(value >= low && value <= high)) return bins;
    const Compute place = (value * scale - scaled_low) * static_cast<Compute>(bins) / width;
    const auto bin = static_cast<std::uint64_t>(place);
    return bin < bins ? bin : bins - 1;
  }
};

// The same for integers, exactly: the products have 128 bits.
template <class T>
struct WholeRangeBin {
  const T* in;
  std::uint64_t bins;
  std::int64_t low;
  std::int64_t high;

  explicit WholeRangeBin(const CountPlan& plan)
      : in(static_cast<const T*>(plan.in)),
        bins(static_cast<std::uint64_t>(plan.bins)),
        low(plan.whole_low),
        high(plan.whole_high) {}
  GANTRY_HD std::uint64_t operator()(std::int64_t i) const {
    const auto value = static_cast<std::int64_t>(in[i]);
    if (value < low || value > high) return bins;
    if (value == high) return bins - 1;
    __extension__ using Wide = unsigned __int128;
    const auto distance = static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(low);
    const auto width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    return static_cast<std::uint64_t>(static_cast<Wide>(distance) * bins / width);
  }
};

// Calls f with the bin of count_bins.
template <class T, class F>
void with_range_bin(const CountPlan& plan, const F& f) {
  if constexpr (is_floating_point(dtype_of<T>)) {
    f(RangeBin<T>(plan));
  } else if constexpr (!std::is_same_v<T, StoredBool>) {
    f(WholeRangeBin<T>(plan));
  }
}

// The part of run_starts that position `i` writes.
GANTRY_HD inline void write_run(const RunPlan& plan, std::int64_t i) {
  const std::int64_t run = plan.runs[i];
  if (i == 0 || plan.runs[i - 1] != run) plan.starts[run] = i;
  if (plan.inverse != nullptr) plan.inverse[plan.order[i]] = run;
}

}  // namespace gantry::kernels
