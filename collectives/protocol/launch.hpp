// Launches of the collective kernels, on both platforms.
#pragma once

#include <gantry/streams/stream.hpp>

#include "collectives/protocol/plan.hpp"

namespace gantry::protocol {

// Each function enqueues one kernel of `blocks` blocks on `stream`, a stream of the rank's device.
// Arguments are not checked. The kernel waits for the kernels of the other ranks.
void launch_one_shot(const OneShot& plan, int blocks, const Stream& stream);
void launch_ll(const LlOneShot& plan, int blocks, const Stream& stream);
void launch_ll128(const LlOneShot& plan, int blocks, const Stream& stream);
void launch_ll128_two_shot(const Ll128TwoShot& plan, int blocks, const Stream& stream);
void launch_two_shot(const TwoShot& plan, int blocks, const Stream& stream);
void launch_zero_copy(const ZeroCopy& plan, int blocks, const Stream& stream);
void launch_send(const Message& plan, const Stream& stream);
void launch_receive(const Message& plan, const Stream& stream);
void launch_messages(const MessagePlan& plan, const Stream& stream);
void launch_progress_report(const ProgressReport& plan, const Stream& stream);
void launch_peer_signal(const PeerSignal& plan, const Stream& stream);

// Loads all kernels for the current device. A first launch may wait for the device, and thereby for
// a kernel that waits for that launch.
void preload();

namespace cuda {
void one_shot(void* stream, const OneShot& plan, int blocks);
void ll(void* stream, const LlOneShot& plan, int blocks);
void ll128(void* stream, const LlOneShot& plan, int blocks);
void ll128_two_shot(void* stream, const Ll128TwoShot& plan, int blocks);
void two_shot(void* stream, const TwoShot& plan, int blocks);
void zero_copy(void* stream, const ZeroCopy& plan, int blocks);
void send(void* stream, const Message& plan);
void receive(void* stream, const Message& plan);
void messages(void* stream, const MessageList<kFewMessages>& plan);
void messages(void* stream, const MessageList<kMostMessages>& plan);
void report_progress(void* stream, const ProgressReport& plan);
void peer_signal(void* stream, const PeerSignal& plan);
void preload_one_shot();
void preload_ll();
void preload_ll128();
void preload_ll128_two_shot();
void preload_two_shot();
void preload_zero_copy();
void preload_message();
void preload_message_group();
void preload_progress_report();
void preload_peer_signal();
}  // namespace cuda

namespace sim {
void one_shot(const OneShot& plan, int blocks);
void ll(const LlOneShot& plan, int blocks);
void ll128(const LlOneShot& plan, int blocks);
void ll128_two_shot(const Ll128TwoShot& plan, int blocks);
void two_shot(const TwoShot& plan, int blocks);
void zero_copy(const ZeroCopy& plan, int blocks);
void send(const Message& plan);
void receive(const Message& plan);
void messages(const MessagePlan& plan);
void report_progress(const ProgressReport& plan);
void peer_signal(const PeerSignal& plan);
}  // namespace sim

}  // namespace gantry::protocol
