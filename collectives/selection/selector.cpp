#include "collectives/selection/selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

namespace gantry {

namespace {

constexpr Choice kFallback{Algorithm::one_shot, 16};

using Kinds = std::uint32_t;  // one bit each
constexpr Kinds only(CollectiveKind kind) { return Kinds{1} << static_cast<int>(kind); }
constexpr Kinds kAll = (Kinds{1} << kCollectiveKinds) - 1;
constexpr Kinds kElements = kAll & ~only(CollectiveKind::barrier) & ~only(CollectiveKind::send) &
                            ~only(CollectiveKind::recv);
constexpr Kinds kArrays = only(CollectiveKind::all_reduce) | only(CollectiveKind::reduce) |
                          only(CollectiveKind::broadcast);
constexpr Kinds kCopied = only(CollectiveKind::all_reduce) | only(CollectiveKind::broadcast) |
                          only(CollectiveKind::all_gather) | only(CollectiveKind::all_to_all);

constexpr int kNothing = 0;
constexpr int kRegistration = 1;
constexpr int kThreeRanks = 2;
constexpr int kLineOrder = 4;

struct AlgorithmTraits {
  Kinds kinds = 0;
  int needs = kNothing;
};
constexpr AlgorithmTraits kTraits[] = {
    {},  // automatic
#define ALGORITHM(name, kinds, needs) {kinds, needs},
#include "collectives/selection/algorithms.def"
#undef ALGORITHM
};
const AlgorithmTraits& traits_of(Algorithm algorithm) {
  return kTraits[static_cast<std::size_t>(algorithm)];
}

// NCCL does not scale. Its order of sums is its own, as are its minima and maxima of NaN and of
// zeros.
bool nccl_may(const Descriptor& what) {
  if (!reduces(what.kind)) return true;
  const bool known = nccl_supports(what.op, what.dtype) && what.scale == 1;
  return known && (!is_floating_point(what.dtype) || what.reproducible == 0);
}

// True for blocks of unequal sizes, and for an all_to_all of empty blocks.
bool is_uneven(const Descriptor& what) {
  return what.count < (what.kind == CollectiveKind::all_to_all ? 1 : 0);
}

// Bytes that one peer gets: the count, whatever the kind.
std::int64_t peer_bytes(const Descriptor& what, std::int64_t message_bytes) {
  return std::min(what.bytes(), message_bytes);
}

std::size_t index_of(CollectiveKind kind) { return static_cast<std::size_t>(kind); }

// The first row that holds for `bytes`; rows are in order of size.
std::size_t row_for(const std::vector<SelectorRow>& rows, std::int64_t bytes) {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const SelectorRow& row) { return bytes <= row.up_to_bytes; });
  return static_cast<std::size_t>(at - rows.begin());
}

// One step of a 64-bit mix whose every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state = (state * 31 + value + 1) * 0x9e3779b97f4a7c15U;
  state ^= state >> 32;
  state *= 0xd6e8feb86659fd93U;
  return state ^ (state >> 29);
}

}  // namespace

bool nccl_supports(ReduceOp op, DType dtype) {
  // NCCL has no integers of 16 bits, and rounds sums of 8-bit floats otherwise.
  const bool has_dtype =
      is_floating_point(dtype) ? element_size(dtype) > 1 : element_size(dtype) != 2;
  return has_dtype && op != ReduceOp::band && op != ReduceOp::bor && op != ReduceOp::bxor;
}

bool can_serve(Algorithm algorithm, CollectiveKind kind) {
  return (traits_of(algorithm).kinds & only(kind)) != 0;
}

bool can_serve(Algorithm algorithm, const Descriptor& what, std::int64_t message_bytes) {
  if (!can_serve(algorithm, what.kind)) return false;
  const bool uneven = is_uneven(what);
  if (what.count < 0 && algorithm != Algorithm::one_shot) {
    return algorithm == Algorithm::nccl || algorithm == Algorithm::host;
  }
  if (algorithm == Algorithm::ll) {
    return !uneven && peer_bytes(what, message_bytes) <= kLlLimitBytes;
  }
  if (algorithm == Algorithm::ll128) {
    return !uneven && peer_bytes(what, message_bytes) <= ll128_limit_bytes(2);
  }
  if (algorithm == Algorithm::ll128_two_shot) return message_bytes <= kLl128TwoShotLimitBytes;
  if (needs_registration(algorithm)) return what.window_offset != 0;
  return algorithm != Algorithm::nccl || nccl_may(what);
}

bool needs_registration(Algorithm algorithm) {
  return (traits_of(algorithm).needs & kRegistration) != 0;
}
bool needs_three_ranks(Algorithm algorithm) {
  return (traits_of(algorithm).needs & kThreeRanks) != 0;
}
bool uses_ll128(Algorithm algorithm) { return (traits_of(algorithm).needs & kLineOrder) != 0; }

std::string algorithm_names(std::string_view between) {
  std::string names;
  for (const Algorithm algorithm : kAllAlgorithms) {
    names.append(names.empty() ? "" : between).append(name(algorithm));
  }
  return names;
}

bool Selector::may_choose_nccl() const {
  if (!has_nccl()) return false;
  if (forced_ == Algorithm::nccl) return true;
  const auto has_row = [](const Rows& rows) {
    return std::any_of(rows.begin(), rows.end(), [](const std::vector<SelectorRow>& of_kind) {
      return std::any_of(of_kind.begin(), of_kind.end(), [](const SelectorRow& row) {
        return row.choice.algorithm == Algorithm::nccl;
      });
    });
  };
  return !p2p_only_ && (has_row(rows_) || has_row(registered_rows_));
}

bool Selector::serves(Algorithm algorithm, const Descriptor& what,
                      std::int64_t message_bytes) const {
  if (needs_three_ranks(algorithm) && group_ranks_ < 3) return false;
  if (uses_ll128(algorithm) && !allows_ll128_) return false;
  // NCCL reduces or, where its order of sums differs from gantry's, moves data for gantry to
  // reduce.
  if (algorithm == Algorithm::nccl && forced_for(what) == algorithm) return has_nccl();
  if (algorithm == Algorithm::nccl && !has_nccl()) return false;
  if (algorithm == Algorithm::ll128 &&
      peer_bytes(what, message_bytes) > ll128_limit_bytes(group_ranks_)) {
    return false;
  }
  return can_serve(algorithm, what, message_bytes);
}

Choice Selector::choose(const Descriptor& what, std::int64_t message_bytes,
                        bool without_nccl) const {
  const Algorithm forced = forced_for(what);
  if (what.window_offset != 0 && forced == Algorithm::automatic) {
    const std::vector<SelectorRow>& rows = registered_rows_[index_of(what.kind)];
    const std::size_t row = row_for(rows, message_bytes);
    if (row < rows.size() && serves(rows[row].choice.algorithm, what, message_bytes)) {
      return rows[row].choice;
    }
  }
  // The nearest row that is allowed and fits: at this size, then above it, then below.
  const auto nearest = [&](bool registered, auto allowed) -> const SelectorRow* {
    const std::vector<SelectorRow>& rows = this->rows(what.kind, registered);
    const std::size_t first = row_for(rows, message_bytes);
    const auto fits = [&](const SelectorRow& row) {
      return allowed(row.choice.algorithm) && serves(row.choice.algorithm, what, message_bytes);
    };
    for (std::size_t i = first; i < rows.size(); ++i) {
      if (fits(rows[i])) return &rows[i];
    }
    for (std::size_t i = std::min(first, rows.size()); i-- > 0;) {
      if (fits(rows[i])) return &rows[i];
    }
    return nullptr;
  };
  if (forced != Algorithm::automatic && serves(forced, what, message_bytes)) {
    const SelectorRow* row = nearest(needs_registration(forced),
                                     [&](Algorithm algorithm) { return algorithm == forced; });
    return {forced, row != nullptr ? row->choice.blocks : kFallback.blocks};
  }
  const auto is_allowed = [&](Algorithm algorithm) {
    const bool is_nccl = algorithm == Algorithm::nccl;
    return algorithm != Algorithm::host && !(is_nccl && (p2p_only_ || without_nccl));
  };
  const SelectorRow* row = nearest(false, is_allowed);
  const Choice choice = row != nullptr ? row->choice : kFallback;
  if (warns_) warn_unless_forced(what, message_bytes, choice.algorithm);
  if (warns_ && is_from_file_) {
    const std::vector<SelectorRow>& rows = this->rows(what.kind);
    const std::size_t first = row_for(rows, message_bytes);
    // Operations that NCCL carries do not come here, unless NCCL is not available.
    if (first < rows.size() && &rows[first] != row &&
        (is_allowed(rows[first].choice.algorithm) || !has_nccl())) {
      warn(rows[first].choice.algorithm, "GANTRY_COLL_TABLE", what, message_bytes,
           choice.algorithm);
    }
  }
  return choice;
}

void Selector::require_served(const Descriptor& what, std::int64_t message_bytes) const {
  const Algorithm wanted = what.algorithm;
  if (wanted == Algorithm::automatic) return;
  const bool is_carried =
      wanted != Algorithm::host && (wanted != Algorithm::nccl || what.count >= 0);
  if (is_carried && serves(wanted, what, message_bytes)) return;
  throw InvalidArgument(
      fmt::format("{}: expected an algorithm that serves the call, but got {}: {}", name(what.kind),
                  name(wanted), why_not(wanted, what, message_bytes)));
}

void Selector::warn(Algorithm wanted, std::string_view source, const Descriptor& what,
                    std::int64_t message_bytes, Algorithm used) const {
  warn_ignored_choice(source, name(wanted), name(what.kind), name(used),
                      why_not(wanted, what, message_bytes));
}

std::string Selector::why_not(Algorithm algorithm, const Descriptor& what,
                              std::int64_t message_bytes) const {
  const bool uneven = is_uneven(what);
  if (algorithm == Algorithm::nccl && !has_nccl()) return why_no_nccl_;
  if (algorithm == Algorithm::host) return "it carries all operations of a group, or none";
  if (!can_serve(algorithm, what.kind)) return "it does not do this operation";
  if (needs_three_ranks(algorithm) && group_ranks_ < 3) return "it needs three ranks or more";
  if (uses_ll128(algorithm) && !allows_ll128_) {
    return "it needs links that keep the order of stores, as NVLink";
  }
  if (needs_registration(algorithm)) return "the tensor is not registered (register_memory())";
  if (uneven) return "the blocks are of unequal size";
  if (algorithm == Algorithm::nccl) {
    return "its result may differ in bits ({.reproducible = false} allows that), or it does not "
           "know the operation";
  }
  return fmt::format("{} bytes are more than it carries", message_bytes);
}

void Selector::rule(std::string_view text, std::string_view what) {
  forced_ = Algorithm::automatic;
  p2p_only_ = text == "p2p";
  if (text.empty() || text == "auto" || p2p_only_) return;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (text == name(algorithm)) {
      forced_ = algorithm;
      return;
    }
  }
  std::string words = "auto, p2p, " + algorithm_names(", ");
  words.replace(words.rfind(", "), 2, " or ");
  throw InvalidArgument(fmt::format("{}: expected {}, but got '{}'", what, words, text));
}

void Selector::set(CollectiveKind kind, std::vector<SelectorRow> rows, bool registered) {
  std::int64_t below = -1;
  for (SelectorRow& row : rows) {
    const bool last = &row == &rows.back();
    if (row.up_to_bytes <= below || last != (row.up_to_bytes == INT64_MAX)) {
      throw InvalidArgument(
          fmt::format("{}: expected rows of growing sizes, the last one for every size, but got {}",
                      name(kind), row.up_to_bytes));
    }
    below = row.up_to_bytes;
    const bool is_any = row.choice.algorithm == Algorithm::automatic;
    if (is_any) row.choice.blocks = 1;
    const bool fits = is_any ? registered
                             : can_serve(row.choice.algorithm, kind) &&
                                   needs_registration(row.choice.algorithm) == registered;
    if (!fits) {
      throw InvalidArgument(fmt::format("{}: expected an algorithm that can do it, but got {}",
                                        name(kind), name(row.choice.algorithm)));
    }
    if (row.choice.blocks < 1 || row.choice.blocks > kMostTableBlocks) {
      throw InvalidArgument(fmt::format("{}: expected 1 to {} blocks, but got {}", name(kind),
                                        kMostTableBlocks, row.choice.blocks));
    }
  }
  (registered ? registered_rows_ : rows_)[index_of(kind)] = std::move(rows);
}

const std::vector<SelectorRow>& Selector::rows(CollectiveKind kind, bool registered) const {
  return (registered ? registered_rows_ : rows_)[index_of(kind)];
}

std::uint32_t Selector::hash() const {
  std::uint64_t state = mix(1, static_cast<std::uint64_t>(forced_));
  state = mix(state, p2p_only_ ? 1 : 0);
  state = mix(state, static_cast<std::uint64_t>(group_ranks_));
  for (const Rows* table : {&rows_, &registered_rows_}) {
    for (const std::vector<SelectorRow>& rows : *table) {
      state = mix(state, rows.size());
      for (const SelectorRow& row : rows) {
        state = mix(state, std::bit_cast<std::uint64_t>(row.up_to_bytes));
        state =
            mix(state, static_cast<std::uint64_t>(row.choice.algorithm) << 16 | row.choice.blocks);
      }
    }
  }
  return static_cast<std::uint32_t>(state ^ (state >> 32));
}

namespace {

// True at the first call with `key`.
bool is_first(std::string key) {
  // Never destroyed: groups may outlive static objects.
  static auto& mutex = *new std::mutex;
  static auto& warned = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return warned.insert(std::move(key)).second;
}

constexpr const char* kVariable = "GANTRY_COLL_ALGO";

}  // namespace

void warn_ignored_choice(std::string_view source, std::string_view value,
                         std::string_view operation, std::string_view instead,
                         std::string_view why) noexcept {
  try {
    if (!is_first(fmt::format("{}={} {}", source, value, operation))) return;
    logging::warn(fmt::format("{}={}: {} goes by {}: {}", source, value, operation, instead, why));
  } catch (const std::bad_alloc&) {  // the next call warns
  }
}

CommChoice comm_choice(std::string_view operation) {
  const std::string wanted = env::get(kVariable).value_or("auto");
  if (wanted == "auto" || wanted.empty()) return CommChoice::automatic;
  if (wanted == "p2p") return CommChoice::p2p;
  if (wanted == "nccl") return CommChoice::nccl;
  Selector().rule(wanted);  // throws for an unknown value
  warn_ignored_choice(kVariable, wanted, operation, "p2p",
                      "operations inside one process have auto, p2p and nccl");
  return CommChoice::p2p;
}

void warn_without_nccl(std::string_view operation, std::string_view why) {
  if (comm_choice(operation) != CommChoice::nccl) return;
  warn_ignored_choice(kVariable, "nccl", operation, "p2p", why);
}

}  // namespace gantry
