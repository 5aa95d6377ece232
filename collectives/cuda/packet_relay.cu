#include "collectives/cuda/wire_relay.cuh"

namespace gantry::protocol::cuda {

void packet_relay(void* stream, const WireRelay& plan, int blocks) {
  launch_wire_relay<Packets>("packet_relay", stream, plan, blocks);
}

void preload_packet_relay() { preload_wire_relay<Packets>(); }

}  // namespace gantry::protocol::cuda
