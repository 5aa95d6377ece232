#include "collectives/protocol/launch.hpp"

#include <algorithm>

#include "kernels/dispatch.hpp"

namespace gantry::protocol {
namespace {

constexpr auto kWaits = ::gantry::sim::KernelWaits::for_peers;

}  // namespace

void launch_exchange(const Exchange& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::exchange(plan, blocks); },
      [&](void* handle) { cuda::exchange(handle, plan, blocks); }, kWaits);
}

void launch_packets(const WireExchange& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::packets(plan, blocks); },
      [&](void* handle) { cuda::packets(handle, plan, blocks); }, kWaits);
}

void launch_lines(const WireExchange& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::lines(plan, blocks); },
      [&](void* handle) { cuda::lines(handle, plan, blocks); }, kWaits);
}

void launch_line_relay(const LineRelay& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::line_relay(plan, blocks); },
      [&](void* handle) { cuda::line_relay(handle, plan, blocks); }, kWaits);
}

void launch_relay(const Relay& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::relay(plan, blocks); },
      [&](void* handle) { cuda::relay(handle, plan, blocks); }, kWaits);
}

void launch_chain(const Chain& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::chain(plan, blocks); },
      [&](void* handle) { cuda::chain(handle, plan, blocks); }, kWaits);
}

void launch_phase(const Phase& plan, int blocks, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan, blocks] { sim::phase(plan, blocks); },
      [&](void* handle) { cuda::phase(handle, plan, blocks); }, kWaits);
}

void launch_send(const Message& plan, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan] { sim::send(plan); },
      [&](void* handle) { cuda::send(handle, plan); }, kWaits);
}

void launch_receive(const Message& plan, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan] { sim::receive(plan); },
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
      kernels::Target::on(stream), {}, [plan] { sim::messages(plan); },
      [&](void* handle) {
        if (plan.messages.size() <= kFewMessages) {
          launch_list<kFewMessages>(handle, plan);
        } else {
          launch_list<kMostMessages>(handle, plan);
        }
      });
}

void launch_telling(const Telling& plan, const Stream& stream) {
  kernels::submit(
      kernels::Target::on(stream), {}, [plan] { sim::tell(plan); },
      [&](void* handle) { cuda::tell(handle, plan); });
}

void preload() {
  if (platform() != Platform::cuda) return;
  cuda::preload_exchange();
  cuda::preload_packets();
  cuda::preload_lines();
  cuda::preload_line_relay();
  cuda::preload_relay();
  cuda::preload_chain();
  cuda::preload_phase();
  cuda::preload_message();
  cuda::preload_message_group();
  cuda::preload_telling();
}

}  // namespace gantry::protocol
