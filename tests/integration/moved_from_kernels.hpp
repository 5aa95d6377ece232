// Moved-from objects of kernels that users write.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/integration/moved_from.hpp"

namespace gantry::testing {

// A move of this one is a copy.
template <>
struct Movable<jit::Elementwise> {
  static constexpr std::string_view kRefusal = "";
  static jit::Elementwise make() {
    return jit::elementwise("template <typename T> T same(T x) { return x; }");
  }
  static bool works(jit::Elementwise& o) { return o.name() == "same"; }
  static std::vector<MovedFromCall<jit::Elementwise>> calls() {
    return {ANSWERS(name, o.name() == "same"),
            ANSWERS(inputs, o.inputs() == 1),
            ANSWERS(outputs, o.outputs() == 1),
            ANSWERS(multi, o.multi(empty({0})).size() == 1),
            ANSWERS(into, (o.into({{empty({0})}}, empty({0})), true)),
            ANSWERS(run, o.run({{Operand(empty({0}))}}).size() == 1),
            ANSWERS(run_into, (o.run_into({{empty({0})}}, {{Operand(empty({0}))}}), true))};
  }
};

template <>
struct Movable<TensorUses> {
  static constexpr std::string_view kRefusal = "";
  static TensorUses make() { return uses(zeros({4}, {.device = Device::cuda(0)})); }
  static bool works(TensorUses& o) {
    return (o.check("launch", Stream::current(Device::cuda(0))), true);
  }
  static std::vector<MovedFromCall<TensorUses>> calls() {
    return {ANSWERS(check, (o.check("launch", Stream::current(Device::cuda(0))), true)),
            ANSWERS(writes, (std::move(o).writes().record(Stream::current(Device::cuda(0))), true)),
            ANSWERS(waits_for_peers, !o.waits_for_peers()),
            ANSWERS(record, (o.record(Stream::current(Device::cuda(0))), true)),
            ANSWERS(str, o.str().empty())};
  }
};

}  // namespace gantry::testing
