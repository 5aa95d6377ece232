#include "collectives/protocol/launch.hpp"

#include <algorithm>

#include "kernels/dispatch.hpp"

namespace gantry::protocol {
namespace {

// The communicator enters the operands of the whole operation.
constexpr const char* kKernel = "collective";
constexpr auto kWaits = ::gantry::sim::KernelWaits::for_peers;

}  // namespace

void launch_one_shot(const OneShot& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::one_shot(plan, blocks); },
      [&](void* handle) { cuda::one_shot(handle, plan, blocks); }, kWaits);
}

void launch_ll(const LlOneShot& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::ll(plan, blocks); },
      [&](void* handle) { cuda::ll(handle, plan, blocks); }, kWaits);
}

void launch_ll128(const LlOneShot& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::ll128(plan, blocks); },
      [&](void* handle) { cuda::ll128(handle, plan, blocks); }, kWaits);
}

void launch_ll128_two_shot(const Ll128TwoShot& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {},
      [plan, blocks] { sim::ll128_two_shot(plan, blocks); },
      [&](void* handle) { cuda::ll128_two_shot(handle, plan, blocks); }, kWaits);
}

void launch_two_shot(const TwoShot& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::two_shot(plan, blocks); },
      [&](void* handle) { cuda::two_shot(handle, plan, blocks); }, kWaits);
}

void launch_ring(const Ring& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::ring(plan, blocks); },
      [&](void* handle) { cuda::ring(handle, plan, blocks); }, kWaits);
}

void launch_zero_copy(const ZeroCopy& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan, blocks] { sim::zero_copy(plan, blocks); },
      [&](void* handle) { cuda::zero_copy(handle, plan, blocks); }, kWaits);
}

void launch_send(const Message& plan, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan] { sim::send(plan); },
      [&](void* handle) { cuda::send(handle, plan); }, kWaits);
}

void launch_receive(const Message& plan, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan] { sim::receive(plan); },
      [&](void* handle) { cuda::receive(handle, plan); }, kWaits);
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
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan] { sim::messages(plan); },
      [&](void* handle) {
        if (plan.messages.size() <= kFewMessages) {
          launch_list<kFewMessages>(handle, plan);
        } else {
          launch_list<kMostMessages>(handle, plan);
        }
      });
}

void launch_progress_report(const ProgressReport& plan, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan] { sim::report_progress(plan); },
      [&](void* handle) { cuda::report_progress(handle, plan); });
}

void launch_peer_signal(const PeerSignal& plan, const Stream& stream) {
  kernels::submit(
      kKernel, kernels::Target::on(stream), {}, [plan] { sim::peer_signal(plan); },
      [&](void* handle) { cuda::peer_signal(handle, plan); }, kWaits);
}

void preload() {
  if (platform() != Platform::cuda) return;
  cuda::preload_one_shot();
  cuda::preload_ll();
  cuda::preload_ll128();
  cuda::preload_ll128_two_shot();
  cuda::preload_two_shot();
  cuda::preload_ring();
  cuda::preload_zero_copy();
  cuda::preload_message();
  cuda::preload_message_group();
  cuda::preload_progress_report();
  cuda::preload_peer_signal();
}

}  // namespace gantry::protocol
