// The ranks of one group.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/rank_table.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Returns GANTRY_COLL_TIMEOUT.
std::chrono::milliseconds collective_timeout();

// The start of a group on one rank.
struct GroupSeed {
  ProcessIdentity identity;
  Device device;
  std::unique_ptr<Bootstrap> bootstrap;
  std::string name;
  std::string maker;                         // the public function, for error texts
  JobGroup job_group = {};                   // the bootstrap has its connection
  std::string label = {};                    // the name that the program gave; empty: none
  std::optional<GroupTimeout> timeout = {};  // none: GANTRY_COLL_TIMEOUT
  std::uint64_t member = 0;                  // of the group from which this one is made; 0: of none
};

// The members of one group: who they are, and how their hosts meet.
// Thread safety: none, but for `control`.
class Members {
 public:
  explicit Members(GroupSeed seed);

  // Exchanges and compares the ranks' settings. Collective. Throws: InvalidArgument.
  void exchange_facts(const Selector& selector);
  // Makes `control` if all ranks are on one machine. Collective. Throws: as ControlSegment.
  void open_control();
  // These ranks of the job.
  [[nodiscard]] JobGroup job_group_of(const std::vector<int>& ranks) const;
  // Of a group of some of these ranks, this rank included.
  [[nodiscard]] GroupSeed subgroup(const std::vector<int>& ranks, const std::string& group,
                                   std::unique_ptr<Bootstrap> boot, const std::string& maker) const;

  ProcessIdentity identity;
  Membership self;
  std::string name;   // unique: a path from the first group on
  bool is_named;      // by the program
  std::string label;  // that name, else `name`
  GroupTimeout timeout;
  std::uint64_t member;            // a number of this rank in all groups that are made from one
  bool are_on_one_machine = true;  // after exchange_facts()
  bool share_addresses = false;    // likewise: all ranks are in one process
  std::optional<RankTable> ranks;  // likewise
  JobGroup job_group;              // without a connection if there is no store
  std::unique_ptr<Bootstrap> first_bootstrap;  // the bootstrap of `control`, if it is another one
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<ControlSegment> control;  // null with one rank, or ranks on several machines
  // The numbers of groups made from this one. After a loss, ranks may have begun different numbers
  // of splits, so shrinks are counted separately.
  int splits = 0;
  int shrinks = 0;
  int grows = 0;
  std::vector<std::string> old_registers;  // of the last grow(), written by this rank
};

}  // namespace gantry
