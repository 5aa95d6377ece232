#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/protocol/layout.hpp"
#include "collectives/selection/selector.hpp"
#include "core/text/escaped_text.hpp"
#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

NodeMap::NodeMap(std::span<const std::string> machines) {
  std::map<std::string, int> known;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [found, is_new] = known.emplace(machines[rank], nodes());
    if (is_new) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(found->second)];
    place_of_.push_back({found->second, static_cast<int>(members.size())});
    members.push_back(static_cast<int>(rank));
  }
}

std::vector<int> NodeMap::column(int index) const {
  std::vector<int> ranks;
  for (int node = 0; node < nodes(); ++node) ranks.push_back(rank_at(node, index));
  return ranks;
}

bool NodeMap::is_even() const {
  return std::all_of(members_.begin(), members_.end(), [&](const std::vector<int>& members) {
    return members.size() == members_.front().size();
  });
}

namespace {

constexpr auto kFinishTimeout = std::chrono::seconds(10);

// The transport of one machine's ranks: a group with its own control segment, over peer memory.
class NodeTransport final : public Transport {
 public:
  // Collective over `members`. Throws: as make_p2p_transport(); NotSupported if that returns null.
  NodeTransport(const Membership& everyone, std::vector<int> members,
                std::unique_ptr<Bootstrap> bootstrap, std::string_view device_name,
                GroupTimeout timeout, std::string_view group)
      : everyone_(everyone),
        members_(std::move(members)),
        bootstrap_(std::move(bootstrap)),
        selector_(Selector::load(static_cast<int>(members_.size()), device_name)) {
    selector_.keep_to_p2p();
    if (members_.front() == everyone.rank) selector_.warn_ignored();
    const auto own = std::find(members_.begin(), members_.end(), everyone.rank);
    const Membership here{static_cast<int>(own - members_.begin()),
                          static_cast<int>(members_.size()), everyone.device};
    control_ = std::make_unique<ControlSegment>(*bootstrap_, here.rank, here.size, timeout, group);
    p2p_ = make_p2p_transport(here, *bootstrap_, *control_, selector_);
    if (p2p_) return;
    // All members get the same result.
    leave();
    throw NotSupported("they do not reach each other's memory");
  }
  ~NodeTransport() override {
    try {
      const BlockingIsNeeded needed;
      driver().synchronize_device(everyone_.device.index);
    } catch (const std::exception& error) {
      logging::debug(fmt::format("leaving the ranks of one machine: {}", error.what()));
    }
    leave();
  }

  std::string_view name() const override { return p2p_->name(); }
  bool is_waiting() const override { return p2p_->is_waiting(); }
  void abort() noexcept override { control_->abort(); }
  void close() noexcept override { leave(); }

  End run(const ResolvedCall& call, const Stream& stream) override {
    check();
    ResolvedCall here = resolve_over_peers(call, control_->size(), selector_, *p2p_);
    here.what.call = ++calls_;
    control_->record(here, here.choice.algorithm, here.message_bytes, stream.id());
    return p2p_->run(here, stream);
  }
  // Messages use the flat transport's links.
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    check();
    return p2p_->run_together(messages, stream);
  }

  void check() {
    try {
      if (const auto fault = control_->take_fault()) std::rethrow_exception(fault->error);
      control_->require_intact();
    } catch (const PeerLostError& error) {
      if (error.rank() < 0) throw;
      const int rank = global_rank(error.rank());
      throw PeerLostError(fmt::format("rank {} was lost; the communicator of {} ranks is unusable",
                                      rank, everyone_.size),
                          rank);
    } catch (const TimeoutError& error) {
      std::vector<int> ranks;
      for (const int rank : error.ranks()) ranks.push_back(global_rank(rank));
      throw TimeoutError(
          fmt::format(
              "rank(s) {} held up their machine's ranks {}, which are counted from 0 here: {}",
              fmt::join(ranks, ", "), fmt::join(members_, ", "), error.what()),
          ranks);
    }
  }

 private:
  // The control segment counts the ranks of this machine only.
  int global_rank(int local) const { return members_[static_cast<std::size_t>(local)]; }

  void leave() noexcept {
    // Before the control segment publishes it: see Note [Closing before freeing].
    if (p2p_) p2p_->close();
    control_->finish(kFinishTimeout);
    bootstrap_->leave();
  }

  Membership everyone_;
  std::vector<int> members_;
  std::unique_ptr<Bootstrap> bootstrap_;
  Selector selector_;
  std::unique_ptr<ControlSegment> control_;
  std::unique_ptr<Transport> p2p_;
  std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(
    const Membership& everyone, Bootstrap& bootstrap, std::span<const std::string> machines,
    std::string_view device_name, GroupTimeout timeout, std::string_view group) {
  const NodeMap map(machines);
  auto all = make_host_transport_over_links(everyone, bootstrap, timeout);
  if (!map.is_hierarchical() || map.width() > protocol::kMaxRanks) return all;
  if (peer_mode() == PeerMode::off) return all;  // the same on all ranks
  const int node = map.node_of(everyone.rank);
  const std::string name = fmt::format("{}.node{}", group, node);
  std::unique_ptr<NodeTransport> here;
  std::string failure;
  try {
    here = std::make_unique<NodeTransport>(everyone, map.members(node),
                                           bootstrap.subset(map.members(node), name), device_name,
                                           timeout, name);
  } catch (const Error& error) {
    failure = error.what();
  }
  const std::vector<std::string> failures = bootstrap.all_gather(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    if (everyone.rank == 0) {
      logging::warn(
          fmt::format("rank {} cannot use its machine's peer memory ({}); all data go "
                      "through host memory",
                      rank, escape_control_characters(failures[rank], LineEnds::keep)));
    }
    return all;
  }
  if (everyone.rank == 0) {
    logging::info(fmt::format("{}: {} machines of {} ranks each, hierarchical", group, map.nodes(),
                              map.width()));
  }
  NodeTransport* const node_transport = here.get();
  return std::make_unique<HierarchicalTransport>(
      HierarchyParts{.everyone = everyone,
                     .map = map,
                     .all = std::move(all),
                     .node = std::move(here),
                     .column = {},
                     .check_node = [node_transport] { node_transport->check(); }});
}

}  // namespace gantry
