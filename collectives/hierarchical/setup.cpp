#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/hierarchical/network_start.hpp"
#include "collectives/hierarchical/network_transport.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/protocol/layout.hpp"
#include "collectives/selection/selector.hpp"
#include "core/env/settings.hpp"
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

bool NodeMap::has_peer_nodes() const { return is_hierarchical() && width() <= protocol::kMaxRanks; }

bool NodeMap::is_even() const {
  return std::all_of(members_.begin(), members_.end(), [&](const std::vector<int>& members) {
    return members.size() == members_.front().size();
  });
}

namespace {

constexpr auto kFinishTimeout = std::chrono::seconds(10);
// By which the deadline of a node is later than the deadline of NCCL.
constexpr auto kNodeDelay = std::chrono::seconds(2);

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

// The parts of a transport of several machines, on one rank.
class Setup {
 public:
  Setup(const Membership& everyone, Bootstrap& bootstrap, std::span<const std::string> machines,
        GroupTimeout timeout, std::string_view group)
      : everyone_(everyone),
        bootstrap_(bootstrap),
        map_(machines),
        timeout_(std::move(timeout)),
        group_(group),
        all_(make_host_transport_over_links(everyone, bootstrap, timeout_)) {}

  std::unique_ptr<Transport> make(std::string_view device_name, std::string why_no_nccl) {
    if (why_no_nccl.empty() && all_->links()->monitor() == nullptr)
      why_no_nccl =
          fmt::format("links by {} detect no lost ranks beside it", all_->links()->name());
    by_nccl_ = why_no_nccl.empty();
    std::unique_ptr<NodeTransport> node = make_node(device_name);
    std::unique_ptr<Transport> nccl;
    if (by_nccl_) nccl = start_nccl(node != nullptr, why_no_nccl);
    if (everyone_.rank == 0) log_choice(node != nullptr, nccl != nullptr, why_no_nccl);
    if (node == nullptr) {
      if (nccl == nullptr) return std::move(all_);
      return make_network_transport(everyone_, std::move(all_), std::move(nccl), timeout_);
    }
    NodeTransport* const node_transport = node.get();
    auto make_flat = nccl != nullptr ? this->make_flat() : nullptr;
    return std::make_unique<HierarchicalTransport>(
        HierarchyParts{.everyone = everyone_,
                       .map = map_,
                       .all = std::move(all_),
                       .node = std::move(node),
                       .column = std::move(nccl),
                       .check_node = [node_transport] { node_transport->check(); },
                       .timeout = timeout_,
                       .make_flat = std::move(make_flat)});
  }

 private:
  // The transport of this rank's machine; null on all ranks if one has none.
  std::unique_ptr<NodeTransport> make_node(std::string_view device_name) {
    if (!map_.has_peer_nodes()) return nullptr;
    if (peer_mode() == PeerMode::off) return nullptr;  // the same on all ranks
    const int node = map_.node_of(everyone_.rank);
    const std::string name = fmt::format("{}.node{}", group_, node);
    // Ranks of a node may wait for one whose column waits. The column knows the late rank.
    const GroupTimeout timeout = by_nccl_ ? timeout_.later_by(kNodeDelay) : timeout_;
    std::unique_ptr<NodeTransport> here;
    std::string failure;
    try {
      here = std::make_unique<NodeTransport>(everyone_, map_.members(node),
                                             bootstrap_.subset(map_.members(node), name),
                                             device_name, timeout, name);
    } catch (const Error& error) {
      failure = error.what();
    }
    const auto [rank, why] = first_failure(bootstrap_, failure);
    if (rank < 0) return here;
    if (everyone_.rank == 0) {
      logging::warn(
          fmt::format("rank {} cannot use its machine's peer memory ({}); all data go "
                      "{}",
                      rank, why, by_nccl_ ? "by NCCL" : "through host memory"));
    }
    return nullptr;
  }

  // Starts NCCL among this rank's column, or among all ranks.
  std::unique_ptr<Transport> start_nccl(bool in_column, std::string& why_not) {
    const auto make = [&](const std::function<void()>& check) {
      if (!in_column) return make_watched_nccl_transport(everyone_, bootstrap_, check);
      const int index = map_.index_of(everyone_.rank);
      const std::unique_ptr<Bootstrap> among =
          bootstrap_.subset(map_.column(index), fmt::format("{}.column{}", group_, index));
      const Membership here{map_.node_of(everyone_.rank), map_.nodes(), everyone_.device};
      std::unique_ptr<Transport> nccl = make_watched_nccl_transport(here, *among, check);
      among->leave();
      return nccl;
    };
    return gantry::start_nccl(bootstrap_, *all_->links()->monitor(), timeout_, make, why_not);
  }

  // Starts NCCL among all ranks when it is called.
  std::function<std::unique_ptr<Transport>()> make_flat() const {
    return [everyone = everyone_, bootstrap = &bootstrap_, links = all_->links(),
            timeout = timeout_, group = group_] {
      bootstrap->set_purpose("starting NCCL");
      std::string why_not;
      auto nccl = gantry::start_nccl(
          *bootstrap, *links->monitor(), timeout,
          [&](const std::function<void()>& check) {
            return make_watched_nccl_transport(everyone, *bootstrap, check);
          },
          why_not);
      if (nccl == nullptr && everyone.rank == 0) {
        logging::warn(fmt::format("{}: links by {} move unequal blocks, without NCCL: {}", group,
                                  links->name(), why_not));
      }
      return nccl;
    };
  }

  void log_choice(bool is_hierarchical, bool by_nccl, const std::string& why_not) const {
    const std::string shape =
        is_hierarchical
            ? fmt::format("{} machines of {} ranks each, hierarchical", map_.nodes(), map_.width())
            : fmt::format("{} ranks on {} machines, flat", map_.ranks(), map_.nodes());
    const std::string carrier =
        by_nccl ? std::string("NCCL moves the data between machines")
                : fmt::format("links by {} move the data between machines, without NCCL: {}",
                              all_->links()->name(), why_not);
    const std::string text = fmt::format("{}: {}; {}", group_, shape, carrier);
    // A choice of the user that cannot be followed, and NCCL that failed.
    const bool is_refused = !by_nccl && (by_nccl_ || env::kHostLinks.get() == "nccl");
    is_refused ? logging::warn(text) : logging::info(text);
  }

  const Membership everyone_;
  Bootstrap& bootstrap_;
  const NodeMap map_;
  const GroupTimeout timeout_;
  const std::string group_;
  std::unique_ptr<HostTransport> all_;
  bool by_nccl_ = false;  // unless it does not start
};

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(const Membership& everyone,
                                                       Bootstrap& bootstrap,
                                                       std::span<const std::string> machines,
                                                       std::string_view device_name,
                                                       GroupTimeout timeout, std::string_view group,
                                                       std::string why_no_nccl) {
  return Setup(everyone, bootstrap, machines, std::move(timeout), group)
      .make(device_name, std::move(why_no_nccl));
}

}  // namespace gantry
