#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/operation_queue.hpp"
#include "collectives/p2p/plans.hpp"
#include "collectives/p2p/registered.hpp"
#include "collectives/p2p/registrations.hpp"
#include "collectives/p2p/workspace.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/slices.hpp"
#include "collectives/transport.hpp"
#include "core/env/settings.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "ipc/open_memory.hpp"

namespace gantry {

namespace {

constexpr auto kProbeTimeout = std::chrono::seconds(5);

// The sizes that tables may contain must fit into the workspace.
static_assert(kLlLimitBytes <= protocol::kMaxLlPayload);
constexpr bool ll128_fits(int ranks) {
  using protocol::kLl128PayloadBytes;
  constexpr auto lines_of = [](std::int64_t bytes) {
    return (bytes + kLl128PayloadBytes - 1) / kLl128PayloadBytes;
  };
  const std::int64_t row =
      protocol::layout_for(ranks).ll128_row_bytes / sizeof(protocol::Ll128Line);
  const int reducers = std::max(2, ranks - 1);
  return lines_of(ll128_limit_bytes(ranks)) <= protocol::kLl128Shots * row &&
         (lines_of(kLl128TwoShotLimitBytes) + reducers - 1) / reducers <= row;
}
static_assert([] {
  for (int ranks = 2; ranks <= protocol::kMaxRanks; ++ranks) {
    if (!ll128_fits(ranks)) return false;
  }
  return true;
}());
static_assert(kMostTableBlocks <= protocol::kMaxBlocks);

class P2pTransport final : public Transport {
 public:
  P2pTransport(const Membership& membership, Bootstrap& bootstrap, ControlSegment& control,
               Selector& selector, bool shares_addresses)
      : control_(control),
        selector_(selector),
        shares_addresses_(shares_addresses),
        bootstrap_(bootstrap),
        workspace_(std::in_place, bootstrap, control, membership.device.index),
        device_(membership.device),
        registrations_(membership.rank, membership.device),
        registered_(group_, registrations_, membership.device.index),
        operations_(membership.device.index),
        sends_(membership.device.index),
        receives_(membership.device.index) {
    if (!workspace_->keeps_ll128_order()) selector.forbid_ll128();
    group_.rank = membership.rank;
    group_.size = membership.size;
    group_.layout = protocol::layout_for(membership.size);
    group_.words = control.device_words();
    address_workspaces();
    if (!shares_addresses_) open_memory();
  }

  std::string_view name() const override { return "p2p"; }

  // Probes whether the ranks can use each other's memory. Collective, before the first operation.
  PeerReachability probe(Bootstrap& bootstrap, int device) const {
    std::vector<void*> memory;
    for (int rank = 0; rank < group_.size; ++rank) {
      memory.push_back(group_.workspaces[rank] + group_.layout.staging);
    }
    return probe_peers(bootstrap, group_.rank, group_.size, device, memory, kProbeTimeout);
  }

  // Closes and frees the memory of the constructor; collective.
  void give_back() { workspace_->give_back(bootstrap_); }

  std::string suspension_problem() const override {
    if (operations_.has_graphs() || sends_.has_graphs() || receives_.has_graphs()) {
      return "no captured operations, since their graphs use the workspace, but got some";
    }
    const auto pad = read_pad();
    for (int rank = 0; rank < group_.size; ++rank) {
      for (int block = 0; block < protocol::kConnectionBlocks; ++block) {
        if (pad->filled[block][rank] == pad->empties[block][rank]) continue;
        return fmt::format("all messages to be received, but got one of rank {} that is not", rank);
      }
    }
    return {};
  }

  void suspend() override {
    workspace_->give_back(bootstrap_);
    workspace_.reset();
  }

  // Zeroed memory on all ranks, as of a new group: operations begin to count anew.
  void resume() override {
    const DeviceGuard guard(device_);
    workspace_.emplace(bootstrap_, control_, device_.index);
    address_workspaces();
  }

  void close() noexcept override {
    if (mirrors_) mirrors_->close();
    if (workspace_) workspace_->close();
  }

  bool is_waiting() const override {
    return operations_.is_busy() || sends_.is_busy() || receives_.is_busy();
  }

  void add_memory(const Storage& storage) override { registrations_.add(bootstrap_, storage); }
  void remove_memory(const Storage& storage, const Stream& stream) override {
    // Running operations may read it.
    operations_.order_after(stream);
    registrations_.remove(storage);
  }

  std::uint64_t window_offset_of(const CollectiveCall& call) const override {
    return registered_.window_offset_of(call);
  }

  End run(const ResolvedCall& call, const Stream& stream) override {
    switch (call.what.kind) {
      case CollectiveKind::send:
        return enqueue(sends_, call, stream,
                       [&] { launch_message<protocol::kernel::send>(call, stream); });
      case CollectiveKind::recv:
        return enqueue(receives_, call, stream,
                       [&] { launch_message<protocol::kernel::receive>(call, stream); });
      default:
        return enqueue(operations_, call, stream, [&] { run_kernel(call, stream); });
    }
  }

  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    sends_.enter(stream);
    receives_.enter(stream);
    launch_messages(messages, stream);
    return {receives_.leave(stream, sends_.leave(stream))};
  }

 private:
  template <class Kernel>
  void launch_message(const ResolvedCall& call, const Stream& stream) {
    protocol::launch<Kernel>(plan_message(group_, call, at_receiver(call, stream)),
                             protocol::kConnectionBlocks, stream);
  }

  void launch_messages(std::span<const ResolvedCall> messages, const Stream& stream) {
    std::vector<std::byte*> at_peers;
    at_peers.reserve(messages.size());
    for (const ResolvedCall& message : messages) at_peers.push_back(at_receiver(message, stream));
    const protocol::MessagePlan plan = plan_messages(group_, messages, at_peers);
    protocol::launch<protocol::kernel::messages>(
        plan, protocol::blocks_of(plan, static_cast<int>(plan.messages.size())), stream);
  }

  // Where the receiver of a large send can access its data; null: nowhere, or it is none.
  std::byte* at_receiver(const CollectiveCall& call, const Stream& stream) {
    const std::int64_t bytes = call.what.bytes();
    if (call.what.kind != CollectiveKind::send || bytes < protocol::kLeastOpenMessage ||
        selector_.forced_for(call.what) != Algorithm::automatic) {
      return nullptr;
    }
    std::array<std::byte*, protocol::kMaxRanks> places{};
    const bool is_open = is_open_at(call, call.in, call.in_block, bytes, places, stream);
    return is_open ? places[static_cast<std::size_t>(call.what.root)] : nullptr;
  }

  // Whether all ranks can access the `bytes` at `data`, and where, by rank.
  bool is_open_at(const CollectiveCall& call, const void* data, const memory::Block* block,
                  std::int64_t bytes, std::span<std::byte*> places, const Stream& stream) {
    if (registrations_.find_at_peers(data, bytes, places)) return true;
    if (open_memory_) {
      const auto use = driver().is_capturing(stream.native()) ? memory::OpenMemory::Use::in_graph
                                                              : memory::OpenMemory::Use::now;
      return block != nullptr &&
             open_memory_->find(*block, data, static_cast<std::size_t>(bytes), use, places);
    }
    std::ranges::fill(places, static_cast<std::byte*>(const_cast<void*>(data)));
    return shares_addresses_ && call.is_open;
  }

  template <class Launch>
  End enqueue(OperationQueue& queue, const ResolvedCall& call, const Stream& stream,
              Launch launch) {
    queue.enter(stream);
    group_.continues = call.continues && last_call_ == call.what.call;
    if (!is_message(call.what.kind)) last_call_ = call.what.call;
    launch();
    return {queue.leave(stream)};
  }

  void run_kernel(const ResolvedCall& call, const Stream& stream) {
    using namespace protocol;
    const int blocks = kernel_blocks(call);
    if (call.is_uneven()) {
      return launch<kernel::uneven_one_shot>(plan_uneven(group_, call, blocks), blocks, stream);
    }
    switch (call.choice.algorithm) {
      case Algorithm::ll:
        return launch<kernel::ll>(plan_flagged_one_shot(group_, call), blocks, stream);
      case Algorithm::ll128:
        return launch<kernel::ll128>(plan_flagged_one_shot(group_, call), blocks, stream);
      case Algorithm::ll128_two_shot:
        return launch<kernel::ll128_two_shot>(plan_flagged_two_shot(group_, call), blocks, stream);
      case Algorithm::two_shot:
        return launch<kernel::two_shot>(plan_two_shot(group_, call, blocks, opening(call, stream)),
                                        blocks, stream);
      case Algorithm::zero_copy:
        return registered_.run_zero_copy(call, blocks, stream);
      case Algorithm::copy:
        return registered_.run_copy(call, stream);
      default:
        return launch<kernel::one_shot>(plan_one_shot(group_, call, blocks, opening(call, stream)),
                                        blocks, stream);
    }
  }

  // The same on all ranks. A forced algorithm is what the user wants to see.
  bool may_open(const ResolvedCall& call) const {
    return (shares_addresses_ || open_memory_ || !registrations_.empty()) &&
           selector_.forced_for(call.what) == Algorithm::automatic && is_worth_opening(call);
  }

  Opening opening(const ResolvedCall& call, const Stream& stream) {
    Opening opening{.is_possible = may_open(call)};
    if (!opening.is_possible) return opening;
    protocol::OpenArrays& arrays = opening.arrays.emplace();
    const Roles& roles = one_shot_roles(call.what.kind);
    const auto open = [&](const void* data, const memory::Block* block, bool is_one,
                          std::span<std::byte*> places) {
      const std::int64_t bytes = call.what.bytes() * (is_one ? 1 : group_.size);
      return data == nullptr || is_open_at(call, data, block, bytes, places, stream);
    };
    const auto ranks = static_cast<std::size_t>(group_.size);
    // Both are asked: the answer for one may offer it to the others.
    const bool is_in_open =
        open(call.in, call.in_block, roles.sends_one, std::span(arrays.ins).first(ranks));
    const bool is_out_open =
        open(call.out, call.out_block, roles.receives_one, std::span(arrays.outs).first(ranks));
    if (!is_in_open || !is_out_open) opening.arrays.reset();
    return opening;
  }

  // Lets ranks of several processes map each other's memory, if all of them can. Collective.
  void open_memory() {
    std::string mine;
    try {
      if (env::kCollOpen.get() && driver().supports_virtual_memory(device_.index)) {
        mirrors_ = memory::Mirrors::make(device_.index);
        mine = memory::MirrorPlace::of(*mirrors_).bytes();
      }
    } catch (const Error& error) {
      logging::debug(fmt::format("memory for other processes: {}", error.what()));
    }
    std::vector<memory::MirrorPlace> places;
    for (const std::string& one : bootstrap_.all_gather(mine)) {
      const auto place = memory::MirrorPlace::from(one);
      if (!place) return mirrors_.reset();
      places.push_back(*place);
    }
    open_memory_.emplace(group_.rank, std::move(places));
  }

  void address_workspaces() {
    for (int rank = 0; rank < group_.size; ++rank) group_.workspaces[rank] = workspace_->of(rank);
  }

  std::unique_ptr<protocol::SignalPad> read_pad() const {
    auto pad = std::make_unique<protocol::SignalPad>();
    const Stream stream = Stream::from_pool(device_);
    driver().copy(pad.get(), group_.workspaces[group_.rank], sizeof *pad, stream.native());
    const BlockingIsNeeded needed;
    stream.synchronize();
    return pad;
  }

  ControlSegment& control_;
  const Selector& selector_;
  const bool shares_addresses_;
  Bootstrap& bootstrap_;
  std::optional<Workspace> workspace_;  // none while suspended
  Device device_;
  protocol::Group group_;
  Registrations registrations_;
  std::shared_ptr<memory::Mirrors> mirrors_;       // none if ranks cannot map memory
  std::optional<memory::OpenMemory> open_memory_;  // likewise
  RegisteredOperations registered_;
  OperationQueue operations_;
  OperationQueue sends_;
  OperationQueue receives_;
  std::int64_t last_call_ = 0;  // the number of the last collective
};

}  // namespace

std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlSegment& control, Selector& selector,
                                              bool shares_addresses) {
  static std::array<std::once_flag, 64> loaded;
  const auto device = static_cast<std::size_t>(membership.device.index);
  const DeviceGuard guard(membership.device);
  if (device < loaded.size()) std::call_once(loaded[device], protocol::preload);
  auto transport =
      std::make_unique<P2pTransport>(membership, bootstrap, control, selector, shares_addresses);
  const PeerReachability reachability = transport->probe(bootstrap, membership.device.index);
  if (reachability.all()) return transport;
  if (membership.rank == 0) {
    logging::warn(fmt::format("no peer-to-peer collectives: {}", reachability.why));
  }
  // Memory that a write may still reach is never freed: cudaFree would block until it has arrived.
  if (reachability.is_under_way) {
    (void)transport.release();
  } else {
    transport->give_back();
  }
  return nullptr;
}

}  // namespace gantry
