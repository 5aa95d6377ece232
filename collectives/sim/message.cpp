#include "collectives/algorithms/message.inl"
#include "collectives/sim/block.hpp"

namespace gantry::protocol::sim {

void send(const Message& plan) {
  for_each_block(kConnectionBlocks, [&](SimBlock& block) { send_message(block, plan); });
}

void receive(const Message& plan) {
  for_each_block(kConnectionBlocks, [&](SimBlock& block) { receive_message(block, plan); });
}

}  // namespace gantry::protocol::sim
