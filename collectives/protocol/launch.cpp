#include "collectives/protocol/launch.hpp"

#include <algorithm>
#include <utility>

#include "kernels/dispatch.hpp"

namespace gantry::protocol {
namespace {

// The communicator enters the operands of the whole operation.
constexpr const char* kKernel = "collective";

// Enqueues the kernel of a Plan: `simulated` with the arguments, or gpu(stream handle).
template <class Plan, class Simulated, class Gpu>
void enqueue(const Stream& stream, Simulated simulated, Gpu gpu) {
  using Waits = ::gantry::sim::KernelWaits;
  // Note [Waiting kernels]
  constexpr Waits kWaits = Plan::kWaitsForPeers ? Waits::for_peers : Waits::never;
  kernels::submit(kKernel, kernels::Target::on(stream), {}, std::move(simulated), std::move(gpu),
                  kWaits);
}

}  // namespace

void launch_one_shot(const OneShot& plan, int blocks, const Stream& stream) {
  enqueue<OneShot>(
      stream, [plan, blocks] { sim::one_shot(plan, blocks); },
      [&](void* handle) { cuda::one_shot(handle, plan, blocks); });
}

void launch_ll(const LlOneShot& plan, int blocks, const Stream& stream) {
  enqueue<LlOneShot>(
      stream, [plan, blocks] { sim::ll(plan, blocks); },
      [&](void* handle) { cuda::ll(handle, plan, blocks); });
}

void launch_ll128(const LlOneShot& plan, int blocks, const Stream& stream) {
  enqueue<LlOneShot>(
      stream, [plan, blocks] { sim::ll128(plan, blocks); },
      [&](void* handle) { cuda::ll128(handle, plan, blocks); });
}

void launch_ll128_two_shot(const Ll128TwoShot& plan, int blocks, const Stream& stream) {
  enqueue<Ll128TwoShot>(
      stream, [plan, blocks] { sim::ll128_two_shot(plan, blocks); },
      [&](void* handle) { cuda::ll128_two_shot(handle, plan, blocks); });
}

void launch_two_shot(const TwoShot& plan, int blocks, const Stream& stream) {
  enqueue<TwoShot>(
      stream, [plan, blocks] { sim::two_shot(plan, blocks); },
      [&](void* handle) { cuda::two_shot(handle, plan, blocks); });
}

void launch_zero_copy(const ZeroCopy& plan, int blocks, const Stream& stream) {
  enqueue<ZeroCopy>(
      stream, [plan, blocks] { sim::zero_copy(plan, blocks); },
      [&](void* handle) { cuda::zero_copy(handle, plan, blocks); });
}

void launch_send(const Message& plan, const Stream& stream) {
  enqueue<Message>(
      stream, [plan] { sim::send(plan); }, [&](void* handle) { cuda::send(handle, plan); });
}

void launch_receive(const Message& plan, const Stream& stream) {
  enqueue<Message>(
      stream, [plan] { sim::receive(plan); }, [&](void* handle) { cuda::receive(handle, plan); });
}

namespace {

template <int Most>
void launch_list(void* handle, const MessagePlan& plan) {
  MessageList<Most> list;
  list.group = plan.group;
  list.sends = plan.sends;
  list.count = static_cast<std::int32_t>(plan.messages.size());
  std::copy(plan.messages.begin(), plan.messages.end(), list.messages);
  cuda::messages(handle, list);
}

}  // namespace

void launch_messages(const MessagePlan& plan, const Stream& stream) {
  enqueue<MessagePlan>(
      stream, [plan = plan] { sim::messages(plan); },  // not const, so that it moves
      [&](void* handle) {
        if (plan.messages.size() <= kFewMessages) {
          launch_list<kFewMessages>(handle, plan);
        } else {
          launch_list<kMostMessages>(handle, plan);
        }
      });
}

void launch_progress_report(const ProgressReport& plan, const Stream& stream) {
  enqueue<ProgressReport>(
      stream, [plan] { sim::report_progress(plan); },
      [&](void* handle) { cuda::report_progress(handle, plan); });
}

void launch_peer_signal(const PeerSignal& plan, const Stream& stream) {
  enqueue<PeerSignal>(
      stream, [plan] { sim::peer_signal(plan); },
      [&](void* handle) { cuda::peer_signal(handle, plan); });
}

void preload() {
  if (platform() != Platform::cuda) return;
  cuda::preload_one_shot();
  cuda::preload_ll();
  cuda::preload_ll128();
  cuda::preload_ll128_two_shot();
  cuda::preload_two_shot();
  cuda::preload_zero_copy();
  cuda::preload_message();
  cuda::preload_message_group();
  cuda::preload_progress_report();
  cuda::preload_peer_signal();
}

}  // namespace gantry::protocol
