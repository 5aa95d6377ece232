#include "collectives/cuda/wire_exchange.cuh"

namespace gantry::protocol::cuda {

void lines(void* stream, const WireExchange& plan, int blocks) {
  launch_wire_exchange<Lines>("lines", stream, plan, blocks);
}

void preload_lines() { preload_wire_exchange<Lines>(); }

}  // namespace gantry::protocol::cuda
