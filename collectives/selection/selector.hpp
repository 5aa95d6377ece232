#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/selection/descriptor.hpp"

namespace gantry {

// The largest slice for one peer that ll carries.
inline constexpr std::int64_t kLlLimitBytes = std::int64_t{64} << 10;
// The largest slice for one peer that ll128 carries among `ranks`, and the largest array of
// ll128_two_shot.
constexpr std::int64_t ll128_limit_bytes(int ranks) { return (std::int64_t{2} << 20) / ranks; }
inline constexpr std::int64_t kLl128TwoShotLimitBytes = std::int64_t{1} << 20;
inline constexpr int kMostTableBlocks = 64;

// The algorithm of an operation and its launch size.
struct Choice {
  Algorithm algorithm = Algorithm::one_shot;
  std::uint16_t blocks = 16;  // thread blocks of the kernel, at most kMaxBlocks of the protocol

  friend bool operator==(const Choice&, const Choice&) = default;
};

// A choice that holds up to a number of bytes of one rank's message: the larger of in and out per
// rank, as nccl-tests count it for the operation.
struct SelectorRow {
  std::int64_t up_to_bytes = INT64_MAX;
  Choice choice;
};

// Chooses the algorithm of an operation: a table of sizes per kind, for one number of ranks and one
// kind of machine. The choice depends only on the descriptor. Ranks with equal tables and equal
// restrictions therefore agree.
class Selector {
 public:
  // The table for `ranks` devices called `device_name`: GANTRY_COLL_TABLE's file, else the one
  // that is shipped for the nearest machine and number of ranks; ruled by GANTRY_COLL_ALGO. Both
  // variables are read anew. Throws: InvalidArgument for a file that is none, with its line or
  // field.
  static Selector load(int ranks, std::string_view device_name);
  // From the text of to_json(), or of a list of such. The tables of this device are taken, else
  // the tables of device "*", else the first device's; of these the largest one that is not for
  // more ranks than `ranks`, else the smallest. Throws: InvalidArgument.
  static Selector parse(std::string_view json, int ranks, std::string_view device_name);

  // `message_bytes` as in SelectorRow. A forced algorithm is taken wherever it can serve `what`.
  // Else host, which carries all operations of a group or none, is not taken.
  Choice choose(const Descriptor& what, std::int64_t message_bytes,
                bool without_nccl = false) const;
  // Makes choose() take `algorithm` wherever it can serve; automatic undoes it.
  void force(Algorithm algorithm) { forced_ = algorithm; }
  Algorithm forced() const { return forced_; }
  // The algorithm that the call wants, else the forced one.
  Algorithm forced_for(const Descriptor& what) const {
    return what.algorithm != Algorithm::automatic ? what.algorithm : forced_;
  }
  // Requires that the algorithm that the call wants, if any, serves it among ranks that reach each
  // other's memory. Throws: InvalidArgument with the reason.
  void require_served(const Descriptor& what, std::int64_t message_bytes) const;
  // As GANTRY_COLL_ALGO says it: auto, an algorithm to force, or p2p (all but nccl and host).
  // Throws: InvalidArgument, which says where the text is from.
  void rule(std::string_view text, std::string_view what = "GANTRY_COLL_ALGO");
  // Makes choose() take no nccl.
  void keep_to_p2p() { p2p_only_ = true; }
  // Makes choose() take no LL128 algorithm. All ranks must call it.
  void forbid_ll128() { allows_ll128_ = false; }
  // Makes choose() take no nccl. `why` is for warn_ignored(). All ranks must call it.
  void forbid_nccl(std::string why) { why_no_nccl_ = std::move(why); }
  bool has_nccl() const { return why_no_nccl_.empty(); }
  // True if choose() may take nccl: the user forces it, or a table has it.
  bool may_choose_nccl() const;
  // Makes choose() warn, once for each kind, of a user's choice that it cannot take. For one rank.
  void warn_ignored() { warns_ = true; }
  // Warns so for a call that `used` carries without choose(). Costs one comparison if no algorithm
  // is forced.
  void warn_unless_forced(const Descriptor& what, std::int64_t message_bytes,
                          Algorithm used) const {
    if (warns_ && forced_ != Algorithm::automatic && forced_ != used &&
        what.algorithm == Algorithm::automatic) {
      warn(forced_, "GANTRY_COLL_ALGO", what, message_bytes, used);
    }
  }
  // True if choose() takes no nccl, though the group may have it.
  bool is_p2p_only() const { return p2p_only_; }

  // Sets the rows for `kind`. Rows for registered memory choose algorithms that need it, or
  // automatic: the choice for any memory. Throws: InvalidArgument.
  void set(CollectiveKind kind, std::vector<SelectorRow> rows, bool registered = false);
  const std::vector<SelectorRow>& rows(CollectiveKind kind, bool registered = false) const;
  std::string to_json() const;
  // Equal on ranks that choose alike.
  std::uint32_t hash() const;

 private:
  bool serves(Algorithm algorithm, const Descriptor& what, std::int64_t message_bytes) const;
  void warn(Algorithm wanted, std::string_view source, const Descriptor& what,
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
  bool allows_ll128_ = true;
  std::string why_no_nccl_;  // empty: it is available
  bool warns_ = false;
  bool is_from_file_ = false;  // of the user
};

// The shipped tables, as a JSON list.
extern const std::string_view kShippedTables;

// The names of kAllAlgorithms.
std::string algorithm_names(std::string_view between);
// True if `algorithm` can carry out operations of `kind` at all, among enough ranks.
bool can_serve(Algorithm algorithm, CollectiveKind kind);
// True if ranks read or write each other's tensors.
bool needs_registration(Algorithm algorithm);
// True for two-shots, which gain nothing with two ranks.
bool needs_three_ranks(Algorithm algorithm);
// True if all links must deliver stores in order, as NVLink: see Note [LL and LL128].
bool uses_ll128(Algorithm algorithm);
// True if NCCL has the op for the dtype: it has neither bitwise operations nor 16-bit integers.
bool nccl_supports(ReduceOp op, DType dtype);
// True if `algorithm` can carry out `what`: ll, ll128 and ll128_two_shot up to their limits;
// zero_copy and copy in registered memory; nccl if it knows the operation and its bits are not
// promised, or if it is forced. An all_to_all of unequal blocks has a count below 1.
bool can_serve(Algorithm algorithm, const Descriptor& what, std::int64_t message_bytes);

// Warns, once in this process for each choice and operation: "GANTRY_COLL_ALGO=nccl: comm::scatter
// goes by p2p: <why>". `source` is the variable, `value` its value.
void warn_ignored_choice(std::string_view source, std::string_view value,
                         std::string_view operation, std::string_view instead,
                         std::string_view why) noexcept;

// The values of GANTRY_COLL_ALGO for operations of comm::*.
enum class CommChoice { automatic, p2p, nccl };

// Returns the choice for `operation`. Warns about an algorithm that comm::* does not have.
// Throws: InvalidArgument for an unknown value.
[[nodiscard]] CommChoice comm_choice(std::string_view operation);
// Warns that `operation` does not use NCCL, if the user chose NCCL.
void warn_without_nccl(std::string_view operation, std::string_view why);
// The reason for operations that only copy between devices of one process.
inline constexpr std::string_view kOwnCopies =
    "inside one process kernels and copy engines of gantry carry it";

}  // namespace gantry
