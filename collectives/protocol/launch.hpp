// How an operation's kernel is launched, on either platform.
#pragma once

#include <gantry/streams/stream.hpp>

#include "collectives/protocol/plan.hpp"

namespace gantry::protocol {

// Each enqueues one kernel of `blocks` blocks on `stream`, of the rank's device; arguments were
// checked. The kernel waits for the kernels of the other ranks.
void launch_exchange(const Exchange& plan, int blocks, const Stream& stream);
void launch_packets(const WireExchange& plan, int blocks, const Stream& stream);
void launch_lines(const WireExchange& plan, int blocks, const Stream& stream);
void launch_line_relay(const LineRelay& plan, int blocks, const Stream& stream);
void launch_relay(const Relay& plan, int blocks, const Stream& stream);
void launch_chain(const Chain& plan, int blocks, const Stream& stream);
void launch_phase(const Phase& plan, int blocks, const Stream& stream);
void launch_send(const Message& plan, const Stream& stream);
void launch_receive(const Message& plan, const Stream& stream);
void launch_messages(const MessagePlan& plan, const Stream& stream);
void launch_telling(const Telling& plan, const Stream& stream);

// Loads all kernels for the current device: a first launch may wait for the device, and with it for
// a kernel that waits for that launch.
void preload();

namespace cuda {
void exchange(void* stream, const Exchange& plan, int blocks);
void packets(void* stream, const WireExchange& plan, int blocks);
void lines(void* stream, const WireExchange& plan, int blocks);
void line_relay(void* stream, const LineRelay& plan, int blocks);
void relay(void* stream, const Relay& plan, int blocks);
void chain(void* stream, const Chain& plan, int blocks);
void phase(void* stream, const Phase& plan, int blocks);
void send(void* stream, const Message& plan);
void receive(void* stream, const Message& plan);
void messages(void* stream, const MessageList<kFewMessages>& plan);
void messages(void* stream, const MessageList<kMostMessages>& plan);
void tell(void* stream, const Telling& plan);
void preload_exchange();
void preload_packets();
void preload_lines();
void preload_line_relay();
void preload_relay();
void preload_chain();
void preload_phase();
void preload_message();
void preload_message_group();
void preload_telling();
}  // namespace cuda

namespace sim {
void exchange(const Exchange& plan, int blocks);
void packets(const WireExchange& plan, int blocks);
void lines(const WireExchange& plan, int blocks);
void line_relay(const LineRelay& plan, int blocks);
void relay(const Relay& plan, int blocks);
void chain(const Chain& plan, int blocks);
void phase(const Phase& plan, int blocks);
void send(const Message& plan);
void receive(const Message& plan);
void messages(const MessagePlan& plan);
void tell(const Telling& plan);
}  // namespace sim

}  // namespace gantry::protocol
