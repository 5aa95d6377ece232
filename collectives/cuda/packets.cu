#include "collectives/cuda/wire_exchange.cuh"

namespace gantry::protocol::cuda {

void packets(void* stream, const WireExchange& plan, int blocks) {
  launch_wire_exchange<Packets>("packets", stream, plan, blocks);
}

void preload_packets() { preload_wire_exchange<Packets>(); }

}  // namespace gantry::protocol::cuda
