#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/descriptor.hpp"

namespace gantry {

// The most bytes for each peer that ll carries.
inline constexpr std::int64_t kLlLimitBytes = std::int64_t{64} << 10;
// The same of ll128 among `ranks`, and of ll128_two_shot.
constexpr std::int64_t ll128_limit_bytes(int ranks) { return (std::int64_t{2} << 20) / ranks; }
inline constexpr std::int64_t kLl128TwoShotLimitBytes = std::int64_t{1} << 20;
inline constexpr int kMostTableBlocks = 64;

// How an operation is carried out.
struct Choice {
  Algorithm algorithm = Algorithm::one_shot;
  std::uint16_t blocks = 16;  // thread blocks of the kernel, at most kMaxBlocks of the protocol

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Up to this many bytes of one rank's message (the larger of in and out per rank, as nccl-tests
// count it for the operation) the choice holds.
struct SelectorRow {
  std::int64_t up_to_bytes = INT64_MAX;
  Choice choice;
};

// Which algorithm serves an operation: a table of sizes per kind for one number of ranks and one
// kind of machine. Depends on nothing but the descriptor, so ranks with equal tables, which all
// forbid the same, agree.
class Selector {
 public:
  // The table for `ranks` devices called `device_name`: GANTRY_COLL_TABLE's file, else the one
  // that is shipped for the nearest machine and number of ranks; ruled by GANTRY_COLL_ALGO. Both
  // variables are read anew. Throws: InvalidArgument for a file that is none, with its line or
  // field.
  static Selector load(int ranks, std::string_view device_name);
  // From the text of to_json(), or of a list of such. The tables of this device are taken, else
  // those of device "*", else the first device's; of those the largest one that is not for more
  // ranks than `ranks`, else the smallest. Throws: InvalidArgument.
  static Selector parse(std::string_view json, int ranks, std::string_view device_name);

  // `message_bytes` as in SelectorRow. A forced algorithm is taken wherever it can serve `what`.
  Choice choose(const Descriptor& what, std::int64_t message_bytes) const;
  // Makes choose() take `algorithm` wherever it can serve; automatic undoes it.
  void force(Algorithm algorithm) { forced_ = algorithm; }
  Algorithm forced() const { return forced_; }
  // As GANTRY_COLL_ALGO says it: auto, an algorithm to force, or p2p (all but nccl and host).
  // Throws: InvalidArgument, which says where the text is from.
  void rule(std::string_view text, std::string_view what = "GANTRY_COLL_ALGO");
  // Makes choose() take neither nccl nor host.
  void keep_to_p2p() { p2p_only_ = true; }
  // Makes choose() take nothing that needs whole lines. For ranks that all say so.
  void forbid_lines() { has_whole_lines_ = false; }
  // Makes choose() take no nccl, where there is none.
  void forbid_nccl() { has_nccl_ = false; }
  // Makes choose() say once for each kind what of the user's choices it cannot take. For one rank.
  void tell_ignored() { tells_ = true; }
  // Says it of a call that `used` carries without choose(). Costs a comparison if nothing is
  // forced.
  void tell_unless_forced(const Descriptor& what, std::int64_t message_bytes,
                          Algorithm used) const {
    if (tells_ && forced_ != Algorithm::automatic && forced_ != used) {
      tell(forced_, "GANTRY_COLL_ALGO", what, message_bytes, used);
    }
  }
  // True if neither nccl nor host is taken.
  bool is_p2p_only() const { return p2p_only_; }

  // Rows for `kind`. Those for registered memory choose algorithms that need it, or automatic:
  // what holds for any memory. Throws: InvalidArgument.
  void set(CollectiveKind kind, std::vector<SelectorRow> rows, bool registered = false);
  const std::vector<SelectorRow>& rows(CollectiveKind kind, bool registered = false) const;
  std::string to_json() const;
  // Equal on ranks that choose alike.
  std::uint32_t hash() const;

 private:
  bool serves(Algorithm algorithm, const Descriptor& what, std::int64_t message_bytes) const;
  void tell(Algorithm wanted, std::string_view source, const Descriptor& what,
            std::int64_t message_bytes, Algorithm used) const;
  std::string why_not(Algorithm algorithm, const Descriptor& what,
                      std::int64_t message_bytes) const;

  using Rows = std::array<std::vector<SelectorRow>, kCollectiveKinds>;

  Rows rows_;
  Rows registered_rows_;
  std::string device_ = "*";
  int ranks_ = 2;        // of the table
  int group_ranks_ = 2;  // of the group that chooses
  Algorithm forced_ = Algorithm::automatic;
  bool p2p_only_ = false;
  bool has_whole_lines_ = true;
  bool has_nccl_ = true;
  bool tells_ = false;
  bool is_from_file_ = false;  // of the user
};

// The tables that are shipped, as a JSON list.
extern const std::string_view kShippedTables;

// True if `algorithm` can carry out operations of `kind` at all, among enough ranks.
bool can_serve(Algorithm algorithm, CollectiveKind kind);
// True if ranks read or write each other's tensors.
bool needs_registration(Algorithm algorithm);
// Relays have owners that are neither source nor taker alone, and chains a middle.
bool needs_three_ranks(Algorithm algorithm);
// Words of 16 must arrive together, as on NVLink: see Note [Wires].
bool needs_whole_lines(Algorithm algorithm);
// True if it can carry out `what`: ll up to kLlLimitBytes per peer, ll128 and
// ll128_two_shot up to their limits; chain no sums that are rounded in the end
// alone; in_place and copy what has a place in registered memory; nccl only operations that it
// knows and whose bits are not promised, unless it is forced. An all_to_all of unequal blocks has a
// count below 1.
bool can_serve(Algorithm algorithm, const Descriptor& what, std::int64_t message_bytes);

}  // namespace gantry
