#pragma once

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// True if the calling thread is within PeerOperands.
[[nodiscard]] bool takes_peer_operands();
// True if operations on `device` may read `operand` of another device: the calling thread is within
// PeerOperands, and the device can reach the memory. Enables that access and notes the operand.
[[nodiscard]] bool adopt_peer_operand(Device device, const Tensor& operand);

}  // namespace gantry::detail
