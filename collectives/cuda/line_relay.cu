#include "collectives/cuda/wire_relay.cuh"

namespace gantry::protocol::cuda {

void line_relay(void* stream, const WireRelay& plan, int blocks) {
  launch_wire_relay<Lines>("line_relay", stream, plan, blocks);
}

void preload_line_relay() { preload_wire_relay<Lines>(); }

}  // namespace gantry::protocol::cuda
