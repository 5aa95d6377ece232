// Reductions in the order of Note [Reduction order], written out, and the test that results have
// its bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/reductions/reduce.hpp"
#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {

// One operation, written out plainly.
template <class Acc>
struct Operation {
  std::function<Acc(Acc)> load;
  std::function<Acc(Acc, Acc)> combine;
  bool takes_root = false;
};

template <class Acc>
Acc larger(Acc a, Acc b) {
  if (a != a) return a;
  if (b != b) return b;
  return a > b ? a : b;
}

template <class Acc>
Operation<Acc> operation(kernels::Reduction op) {
  using kernels::Reduction;
  const auto same = [](Acc x) { return x; };
  switch (op) {
    case Reduction::sum:
      return {same, add<Acc>};
    case Reduction::prod:
      return {same, multiply<Acc>};
    case Reduction::max:
      return {same, larger<Acc>};
    case Reduction::min:
      return {same, [](Acc a, Acc b) { return -larger<Acc>(-a, -b); }};
    case Reduction::norm2:
      return {[](Acc x) { return x * x; }, add<Acc>, true};
    case Reduction::sum_abs:
      return {[](Acc x) { return std::abs(x); }, add<Acc>};
    case Reduction::any:
      return {[](Acc x) { return Acc(x != 0); }, larger<Acc>};
    case Reduction::all:
      return {[](Acc x) { return Acc(x != 0); }, [](Acc a, Acc b) { return a < b ? a : b; }};
    case Reduction::count_nonzero:
      return {[](Acc x) { return Acc(x != 0); }, add<Acc>};
    case Reduction::variance:
    case Reduction::deviation:
    case Reduction::log_sum_exp:
    case Reduction::argmax:
    case Reduction::argmin:
      break;  // their states are several numbers
  }
  return {};
}

// Note [Reduction order], written out.
template <class Acc>
Acc in_order(const std::vector<Acc>& elements, const std::function<Acc(Acc, Acc)>& combine) {
  if (elements.size() == 1) return elements[0];
  std::vector<Acc> results;
  for (std::size_t first = 0; first < elements.size(); first += 16384) {
    std::vector<std::optional<Acc>> accumulators(128);
    const auto take_in = [&](std::optional<Acc>& into, const std::optional<Acc>& from) {
      if (from) into = into ? combine(*into, *from) : *from;
    };
    for (std::size_t k = first; k < std::min(first + 16384, elements.size()); ++k) {
      take_in(accumulators[k % 128], elements[k]);
    }
    for (std::size_t half = 64; half > 0; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) take_in(accumulators[j], accumulators[j + half]);
    }
    results.push_back(*accumulators[0]);
  }
  return in_order(results, combine);
}

inline std::vector<Array> run_reduce(kernels::Reduction op, DType out, const Array& in,
                                     unsigned mask, double divisor = 1) {
  return run_everywhere(
      {Array(out, contiguous(reduced_sizes(in.layout().sizes, mask))), in},
      [&](const kernels::Target& target, const std::vector<TensorRef>& t) {
        kernels::reduce(target, op, t[0], t[1], divisor);
      },
      in.layout().name);
}

// Asserts the exact bits of every output (any NaN for a NaN).
template <class T, class Out>
void expect_in_order(kernels::Reduction op, const Array& in, unsigned mask, double divisor = 1) {
  using Acc = Accumulator<T>;
  const std::vector<Array> arrays = run_reduce(op, dtype_of<Out>, in, mask, divisor);
  const auto outputs = members(in.layout().sizes, mask);
  const Operation<Acc> how = operation<Acc>(op);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    std::vector<Acc> elements;
    for (const std::int64_t i : outputs[o]) {
      elements.push_back(how.load(static_cast<Acc>(in.get<T>(i))));
    }
    Acc expected = in_order<Acc>(elements, how.combine);
    if constexpr (is_floating_point(dtype_of<Out>)) {
      if (how.takes_root) expected = std::sqrt(expected);
      if (divisor != 1) expected = expected / static_cast<Acc>(divisor);
    }
    const Out rounded = static_cast<Out>(expected);
    const Out got = arrays[0].get<Out>(static_cast<std::int64_t>(o));
    if constexpr (is_floating_point(dtype_of<Out>)) {
      if (std::isnan(static_cast<double>(rounded))) {
        ASSERT_TRUE(std::isnan(static_cast<double>(got)));
        continue;
      }
    }
    ASSERT_EQ(std::memcmp(&rounded, &got, sizeof got), 0)
        << "operation " << static_cast<int>(op) << " of " << in.dtype() << " " << in.layout().name
        << " " << in.layout().sizes << " mask " << mask << " output " << o << ": expected "
        << static_cast<double>(rounded) << ", but got " << static_cast<double>(got);
  }
}

}  // namespace gantry::testing
