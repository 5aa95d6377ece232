// What a build without CUDA has instead of collective kernels: nothing calls them, because there is
// no CUDA platform.
#include <cstdlib>

#include "collectives/protocol/launch.hpp"

namespace gantry::protocol::cuda {

void exchange(void*, const Exchange&, int) { std::abort(); }
void packets(void*, const WireExchange&, int) { std::abort(); }
void lines(void*, const WireExchange&, int) { std::abort(); }
void line_relay(void*, const LineRelay&, int) { std::abort(); }
void relay(void*, const Relay&, int) { std::abort(); }
void chain(void*, const Chain&, int) { std::abort(); }
void phase(void*, const Phase&, int) { std::abort(); }
void send(void*, const Message&) { std::abort(); }
void receive(void*, const Message&) { std::abort(); }
void messages(void*, const MessageList<kFewMessages>&) { std::abort(); }
void messages(void*, const MessageList<kMostMessages>&) { std::abort(); }
void tell(void*, const Telling&) { std::abort(); }
void preload_exchange() { std::abort(); }
void preload_packets() { std::abort(); }
void preload_lines() { std::abort(); }
void preload_line_relay() { std::abort(); }
void preload_relay() { std::abort(); }
void preload_chain() { std::abort(); }
void preload_phase() { std::abort(); }
void preload_message() { std::abort(); }
void preload_message_group() { std::abort(); }
void preload_telling() { std::abort(); }

}  // namespace gantry::protocol::cuda
