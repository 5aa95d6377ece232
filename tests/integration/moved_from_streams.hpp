// Moved-from streams.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include <gantry/gantry.hpp>

#include "tests/integration/moved_from.hpp"

namespace gantry::testing {

template <>
struct Movable<OwnedStream> {
  static constexpr std::string_view kRefusal = "expected a valid OwnedStream, but got a moved-from";
  static OwnedStream make() { return OwnedStream(Device::cuda(0)); }
  static bool works(OwnedStream& o) {
    return o.stream().device() == Device::cuda(0) && o.priority() == 0;
  }
  static std::vector<MovedFromCall<OwnedStream>> calls() {
    return {REFUSES(stream, o.stream()), REFUSES(priority, o.priority())};
  }
};

}  // namespace gantry::testing
