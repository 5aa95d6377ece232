// Peer memory that only seems to work.
#pragma once

#include "tests/support/fault_driver.hpp"

namespace gantry::testing {

/// A driver whose copies between two devices are lost without an error.
class LosingDriver final : public FaultDriver {
 public:
  explicit LosingDriver(int to) : to_(to) {}
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    const PointerInfo from = pointer_info(src);
    const PointerInfo to = pointer_info(dst);
    const bool crosses = from.kind == PointerKind::device && to.kind == PointerKind::device &&
                         from.device != to.device;
    if (crosses && to.device == to_) return;
    FaultDriver::copy(dst, src, bytes, stream);
  }

 private:
  int to_;
};

}  // namespace gantry::testing
