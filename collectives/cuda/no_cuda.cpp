// Stubs of the collective kernels for builds without CUDA. They are never called, because there is
// no CUDA platform.
#include <cstdlib>

#include "collectives/protocol/launch.hpp"

namespace gantry::protocol::cuda {

void one_shot(void*, const OneShot&, int) { std::abort(); }
void ll(void*, const LlOneShot&, int) { std::abort(); }
void ll128(void*, const LlOneShot&, int) { std::abort(); }
void ll128_two_shot(void*, const Ll128TwoShot&, int) { std::abort(); }
void two_shot(void*, const TwoShot&, int) { std::abort(); }
void zero_copy(void*, const ZeroCopy&, int) { std::abort(); }
void send(void*, const Message&) { std::abort(); }
void receive(void*, const Message&) { std::abort(); }
void messages(void*, const MessageList<kFewMessages>&) { std::abort(); }
void messages(void*, const MessageList<kMostMessages>&) { std::abort(); }
void report_progress(void*, const ProgressReport&) { std::abort(); }
void peer_signal(void*, const PeerSignal&) { std::abort(); }
void preload_one_shot() { std::abort(); }
void preload_ll() { std::abort(); }
void preload_ll128() { std::abort(); }
void preload_ll128_two_shot() { std::abort(); }
void preload_two_shot() { std::abort(); }
void preload_zero_copy() { std::abort(); }
void preload_message() { std::abort(); }
void preload_message_group() { std::abort(); }
void preload_progress_report() { std::abort(); }
void preload_peer_signal() { std::abort(); }

}  // namespace gantry::protocol::cuda
