#include <cstdint>

#include "kernels/impl/binning.inl"

namespace gantry::kernels::host {

namespace {

template <class Bin>
void count(const CountPlan& plan, const Bin& bin_of) {
  for (std::int64_t i = 0; i < plan.n; ++i) {
    const std::uint64_t bin = bin_of(i);
    if (bin < static_cast<std::uint64_t>(plan.bins)) ++plan.counts[bin];
  }
}

}  // namespace

void searchsorted(const SearchPlan& plan) {
  dispatch_keys(plan.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const auto order = make_key_order<U>(plan.dtype, false);
    for (std::int64_t i = 0; i < plan.count; ++i) {
      const std::int64_t at = search<U>(plan, order, i);
      if (plan.is_wide) {
        static_cast<std::int64_t*>(plan.out)[i] = at;
      } else {
        static_cast<std::int32_t*>(plan.out)[i] = static_cast<std::int32_t>(at);
      }
    }
  });
}

void count_values(const CountPlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_floating_point(dtype_of<T>)) count(plan, ValueBin<T>(plan));
  });
}

void count_bins(const CountPlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_range_bin<T>(plan, [&](const auto& bin_of) { count(plan, bin_of); });
  });
}

void run_starts(const RunPlan& plan) {
  for (std::int64_t i = 0; i < plan.n; ++i) write_run(plan, i);
}

void first_of_runs(const FirstsPlan& plan) {
  dispatch_keys(plan.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const auto order = make_key_order<U>(plan.dtype, false);
    const auto* const in = static_cast<const U*>(plan.in);
    auto* const out = static_cast<U*>(plan.out);
    const bool has_nan = order.kind == KeyKind::floating;
    std::int64_t count = 0;
    U last = 0;  // the key of the preceding element
    for (std::int64_t i = 0; i < plan.n; ++i) {
      const U key = order.key(in[i]);
      if (i == 0 || key != last || (has_nan && key == order.nan)) out[count++] = in[i];
      last = key;
    }
    *plan.count = count;
  });
}

}  // namespace gantry::kernels::host
