#include "tools/bench/model/model.hpp"

#include <algorithm>

#include <gantry/core/error.hpp>

#include "collectives/hierarchical/traffic.hpp"
#include "collectives/host/traffic.hpp"
#include "collectives/p2p/traffic.hpp"
#include "collectives/protocol/layout.hpp"

namespace gantry::bench {

namespace {

NodeMap map_of(const MachineModel& machines, int ranks) {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back(std::to_string(rank / machines.width()));
  return NodeMap(names);
}

Selector selector_of(const MachineModel& machines, int ranks) {
  Selector selector = Selector::load(ranks, machines.device);
  if (selector.forced() == Algorithm::nccl) {
    throw InvalidArgument(
        "--model: expected algorithms of gantry, but got nccl, which has a schedule of its own");
  }
  selector.forbid_nccl("a model has no NCCL");
  if (!machines.keeps_line_order) selector.forbid_ll128();
  return selector;
}

}  // namespace

// The bytes of links in both directions.
class Model::Loads {
 public:
  Loads(const MachineModel& machines, int ranks)
      : machines_(machines),
        peers_(static_cast<std::size_t>(ranks)),
        hosts_(static_cast<std::size_t>(machines.machines)),
        interfaces_(static_cast<std::size_t>(machines.machines * machines.interfaces)) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int machine = rank / machines.width();
      places_.push_back(
          {machine, machine * machines.interfaces +
                        machines.nics[static_cast<std::size_t>(rank % machines.width())]});
    }
  }

  void add(const Transfer& moved) {
    messages_ += moved.messages;
    const auto from = static_cast<std::size_t>(moved.from);
    const auto to = static_cast<std::size_t>(moved.to);
    if (moved.way == Way::peers) {
      peers_[from].out += moved.bytes;
      peers_[to].in += moved.bytes;
    } else if (places_[from].machine == places_[to].machine) {
      hosts_[static_cast<std::size_t>(places_[from].machine)].out += moved.bytes;
    } else {
      interfaces_[static_cast<std::size_t>(places_[from].interface)].out += moved.bytes;
      interfaces_[static_cast<std::size_t>(places_[to].interface)].in += moved.bytes;
    }
  }

  [[nodiscard]] Prediction predict(const Steps& steps) const {
    Prediction result;
    result.steps = steps.peers + steps.hosts;
    result.messages = messages_;
    result.peer = load_of(peers_);
    result.host = load_of(hosts_);
    result.network = load_of(interfaces_);
    const LinkRates& between_hosts = result.network.bytes > 0 ? machines_.network : machines_.host;
    result.time_us = static_cast<double>(steps.peers) * machines_.peer.latency_us +
                     static_cast<double>(steps.hosts) * between_hosts.latency_us +
                     transfer_us(result.peer, machines_.peer) +
                     transfer_us(result.host, machines_.host) +
                     transfer_us(result.network, machines_.network);
    return result;
  }

 private:
  struct Link {
    std::int64_t out = 0;
    std::int64_t in = 0;
  };
  struct Place {
    int machine;
    int interface;
  };

  static LinkLoad load_of(const std::vector<Link>& links) {
    LinkLoad load;
    for (const Link& link : links) {
      load.busiest_bytes = std::max({load.busiest_bytes, link.out, link.in});
      load.bytes += link.out;
    }
    return load;
  }
  static double transfer_us(const LinkLoad& load, const LinkRates& rates) {
    if (load.busiest_bytes == 0) return 0;
    return static_cast<double>(load.busiest_bytes) / rates.bandwidth_gbs / 1e3;
  }

  const MachineModel& machines_;
  std::vector<Place> places_;  // by rank
  std::vector<Link> peers_;
  std::vector<Link> hosts_;
  std::vector<Link> interfaces_;
  std::int64_t messages_ = 0;
};

Model::Model(const MachineModel& machines, int ranks)
    : machines_(machines),
      ranks_(ranks),
      map_(map_of(machines, ranks)),
      selector_(selector_of(machines, ranks)),
      node_selector_(selector_of(machines, machines.width())),
      carrier_(find_carrier()) {
  node_selector_.keep_to_p2p();
}

// As a group chooses its transport, see TransportSet.
Model::Carrier Model::find_carrier() const {
  if (selector_.forced() == Algorithm::host || !machines_.reaches_peers) return Carrier::hosts;
  if (map_.nodes() > 1) return map_.has_peer_nodes() ? Carrier::levels : Carrier::hosts;
  return ranks_ <= protocol::kMaxRanks ? Carrier::peers : Carrier::hosts;
}

bool Model::serves(const Case& what) const {
  const Algorithm forced = selector_.forced();
  return forced == Algorithm::automatic ||
         selector_.choose(describe(what), what.bytes).algorithm == forced;
}

ResolvedCall Model::resolved(const Descriptor& what, int ranks, const Selector& selector) const {
  ResolvedCall call({.what = what}, ranks);
  call.choice = selector.choose(what, call.message_bytes);
  return call;
}

bool Model::opens(const Descriptor& what, const Selector& selector) const {
  return machines_.opens_memory && selector.forced_for(what) == Algorithm::automatic;
}

Steps Model::count_messages(const Descriptor& what, const TransferVisitor& visit) const {
  Steps steps;
  for (int rank = 0; rank + 1 < ranks_; rank += 2) {
    steps =
        carrier_ == Carrier::peers
            ? count_message_over_peers(what, rank, rank + 1, ranks_, opens(what, selector_), visit)
            : count_message_over_hosts(what, rank, rank + 1, ranks_, visit);
  }
  return steps;
}

Steps Model::count(const Case& wanted, const TransferVisitor& visit, std::string& algorithm) const {
  Descriptor what = describe(wanted);
  if (carrier_ != Carrier::peers) what.window_offset = 0;  // registrations are of one machine
  algorithm = carrier_ == Carrier::levels ? "hierarchical" : "host";
  if (is_message(what.kind)) {
    if (carrier_ == Carrier::peers) {
      algorithm = name(selector_.choose(what, wanted.bytes).algorithm);
    }
    return count_messages(what, visit);
  }
  if (carrier_ == Carrier::hosts) return count_over_hosts(what, ranks_, visit);
  if (carrier_ == Carrier::peers) {
    const ResolvedCall call = resolved(what, ranks_, selector_);
    algorithm = name(call.choice.algorithm);
    return count_over_peers(call, ranks_, opens(what, selector_), visit);
  }
  const NodeCounter in_node = [&](const ResolvedCall& part, int width,
                                  const TransferVisitor& visit_part) {
    return count_over_peers(resolved(part.what, width, node_selector_), width,
                            opens(part.what, node_selector_), visit_part);
  };
  return count_by_levels(what, map_, in_node, visit);
}

Prediction Model::predict(const Case& what) const {
  Loads loads(machines_, ranks_);
  std::string algorithm;
  const Steps steps = count(
      what, [&](const Transfer& moved) { loads.add(moved); }, algorithm);
  Prediction result = loads.predict(steps);
  result.algorithm = std::move(algorithm);
  return result;
}

}  // namespace gantry::bench
