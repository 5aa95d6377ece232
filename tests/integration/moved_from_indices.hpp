// Moved-from index lists and plans.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/integration/moved_from.hpp"

namespace gantry::testing {

// A moved-from Index that held a tensor holds an undefined one.
template <>
struct Movable<Index> {
  static constexpr std::string_view kRefusal = "an undefined tensor";
  static Index make() { return tensor({1, 0}); }
  static Tensor read(const Index& o) { return arange(2).index(std::span(&o, 1)); }
  static bool works(Index& o) { return read(o)[0].item<int>() == 1; }
  static std::vector<MovedFromCall<Index>> calls() {
    return {ANSWERS(value, !std::holds_alternative<bool>(o.value())),
            ANSWERS(str, o.str() == "undefined"), REFUSES(, read(o))};
  }
};

template <>
struct Movable<IndexPlan> {
  static constexpr std::string_view kRefusal = "an undefined tensor";
  static IndexPlan make() {
    const std::vector<Index> list = {tensor({1, 0})};
    return IndexPlan::for_read(arange(2), list);
  }
  static bool works(IndexPlan& o) { return o.read()[0].item<int>() == 1; }
  static std::vector<MovedFromCall<IndexPlan>> calls() {
    return {ANSWERS(kind, std::holds_alternative<GatherPlan>(o.kind())),
            ANSWERS(name, o.name() == "Gather"),
            ANSWERS(sizes, o.sizes().size() <= 1),
            ANSWERS(bytes_moved, o.bytes_moved() >= 0),
            ANSWERS(temporary_bytes, o.temporary_bytes() >= 0),
            REFUSES(str, o.str()),
            REFUSES(read, o.read()),
            REFUSES(write, o.write(1))};
  }
};

}  // namespace gantry::testing
