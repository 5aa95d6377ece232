// Primitives of the operations by LL and LL128: send, receive, entries, and reductions of words.
#pragma once

#include <cstring>

#include "collectives/algorithms/ll.inl"
#include "core/code_size.hpp"
#include "kernels/impl/nary.inl"

namespace gantry::protocol {

// A rank-ordered reduction of `Words` 8-byte words of elements per rank, by F.
template <class F, int Words, class Block>
class WordReducer {
 public:
  static constexpr int kElements = 8 * Words / static_cast<int>(sizeof(typename F::Stored));

  GANTRY_HD explicit WordReducer(const ReduceBy& how) : how_(how) {}
  GANTRY_HD void add(const std::uint64_t (&words)[Words], bool first) {
    typename F::Stored elements[kElements];
    memcpy(static_cast<void*>(elements), words, sizeof words);
    for (int i = 0; i < kElements; ++i) {
      const auto value = Block::scaled(F::load(elements[i]), how_.scale);
      acc_[i] = first ? value : F::combine(acc_[i], value);
    }
  }
  GANTRY_HD void finish(std::uint64_t (&words)[Words]) const {
    typename F::Stored elements[kElements];
    F::finish(acc_, how_.divisor, elements);
    memcpy(words, elements, sizeof words);
  }

 private:
  const ReduceBy& how_;
  typename F::Acc acc_[kElements] = {};
};

// Checks the operation after a long wait for units. Returns true, with the fault reported, if the
// thread must give up. Units may be missing because of a mismatch with a third rank: a reducer
// makes no result of calls that differ. No thread gives up before all ranks have entered. Until
// then a rank may still be in the previous operation, whose memory the next one would overwrite
// (Note [Signals]).
template <class Block>
GANTRY_NOINLINE GANTRY_HD bool should_give_up(Block block, const Group& group, std::uint64_t call,
                                              std::uint32_t epoch, std::uint32_t digest,
                                              std::uint32_t checks) {
  int absent = -1;
  int other = -1;
  GANTRY_ROLLED
  for (int p = 0; p < group.size; ++p) {
    if (p == group.rank) continue;
    const Entry entry = entry_in(
        block.acquire(&pad_of(group, group.rank).entry_barrier[epoch & 1][0][p]), epoch, digest);
    if (entry == Entry::absent) absent = p;
    if (entry == Entry::differs) other = p;
  }
  Outcome outcome = check_abort(block, group, call, epoch, checks);
  if (outcome == Outcome::done && absent < 0 && other >= 0) outcome = Outcome::mismatch;
  if (outcome == Outcome::done) return false;
  fail(block, group, outcome, outcome == Outcome::mismatch ? other : absent, call, epoch);
  return true;
}

// Sends and receives of units, by protocol `Proto`. A thread waits for units of `Batch` ranks at
// once: more ranks would need more code, which takes time to fetch.
template <class Proto, int Batch, class Block>
class LlPrimitives {
 public:
  using Unit = typename Proto::Unit;
  static constexpr int kHeld = Proto::kHeld;

  GANTRY_HD LlPrimitives(Block& block, const Group& group, std::uint64_t call, std::uint32_t digest,
                         std::uint32_t epoch)
      : block_(block),
        group_(group),
        call_(call),
        digest_(digest),
        epoch_(epoch),
        sent_at_(row_of(group.rank)) {}

  // Signals this rank's call to all peers. Threads read it after a long wait, and where units do
  // not imply that all ranks entered.
  GANTRY_HD void signal_entry() {
    if (block_.index() != 0) return;
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      block_.post(&pad_of(group_, p).entry_barrier[epoch_ & 1][0][group_.rank],
                  signal_word(epoch_, digest_));
    });
  }
  GANTRY_HD bool wait_all_entries() {
    return wait_entries(block_, group_, call_, 0, epoch_, [&](int) { return digest_; });
  }

  // Sends the words that this thread holds of unit i to `receiver`. A two-shot has a row for each
  // shot. A one-shot may continue into the row of the second shot.
  GANTRY_HD void send(int receiver, int shot, std::int32_t i, const std::uint64_t (&words)[kHeld]) {
    std::byte* const row =
        group_.workspaces[receiver] + (sent_at_ + shot * Proto::row_bytes(group_));
    Proto::send(block_, reinterpret_cast<Unit*>(row) + i, words, flag());
  }

  // Sets words[k] to the words that this thread holds of unit i of rank first + k, for all k whose
  // ranks are in `from`. Returns false, with the fault reported, if the thread gives up.
  GANTRY_HD bool receive(int shot, std::uint32_t from, int first, std::int32_t i,
                         std::uint64_t (&words)[Batch][kHeld]) {
    const std::uint32_t stride = Proto::row_bytes(group_) * Proto::kShots;
    const std::byte* const units =
        group_.workspaces[group_.rank] +
        (row_of(first) + shot * Proto::row_bytes(group_) + i * sizeof(Unit));
    std::uint32_t waiting = from >> first & ((1u << Batch) - 1);
    GANTRY_ROLLED
    for (std::uint32_t spins = 1; Proto::agree(block_, waiting != 0); ++spins) {
      typename Proto::Seen seen[Batch];
      for (int k = 0; k < Batch; ++k) {
        if (!has(waiting, k)) continue;
        Proto::poll(block_, reinterpret_cast<const Unit*>(units + std::size_t{k * stride}),
                    seen[k]);
      }
      for (int k = 0; k < Batch; ++k) {
        if (!Proto::has_arrived(block_, has(waiting, k), seen[k], flag())) continue;
        if constexpr (Proto::kIsOneLoad) Proto::unpack(seen[k], words[k]);
        waiting &= ~(1u << k);
      }
      if (spins % kPollsPerCheck == 0 && Proto::agree(block_, waiting != 0)) [[unlikely]] {
        block_.note_reported();
        if (Proto::agree(block_, should_give_up(block_, group_, call_, epoch_, digest_,
                                                spins / kPollsPerCheck))) {
          return false;
        }
      }
      block_.pause(spins);
    }
    if constexpr (!Proto::kIsOneLoad) {
      for (int k = 0; k < Batch; ++k) {
        if (!has(from >> first, k)) continue;
        Proto::load(block_, reinterpret_cast<const Unit*>(units + std::size_t{k * stride}),
                    words[k]);
      }
    }
    return true;
  }

 private:
  GANTRY_HD LlFlag flag() const { return LlFlag::of(epoch_, digest_); }
  // The offset of the rows of `sender` in every workspace; 32 bits, for less code.
  GANTRY_HD std::uint32_t row_of(int sender) const {
    const std::uint32_t row = (epoch_ & 1) * group_.size + sender;
    return Proto::rows(group_) + row * Proto::kShots * Proto::row_bytes(group_);
  }

  Block& block_;
  const Group& group_;
  std::uint64_t call_;
  std::uint32_t digest_;
  std::uint32_t epoch_;
  std::uint32_t sent_at_;
};

// Loads the words that a thread holds of unit `unit` of the `bytes` at `data`; zero past the end.
// A complete unit of an aligned array, the usual case, is one branch and one access per word.
template <class Proto, class Block>
GANTRY_HD void load_unit(const Block& block, const std::byte* data, std::int32_t unit,
                         std::int32_t bytes, std::uint64_t (&words)[Proto::kHeld]) {
  constexpr std::int32_t kUnitBytes = Proto::kUnitWords * 8;
  const int first = Proto::first_word(block);
  const std::int32_t at = unit * kUnitBytes;
  const std::byte* const from = data + at;
  if (at + kUnitBytes <= bytes && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) [[likely]] {
    for (int h = 0; h < Proto::kHeld; ++h) {
      // The thread that holds the flag loads another word instead.
      const int i = first + h < Proto::kUnitWords ? first + h : first;
      words[h] = reinterpret_cast<const std::uint64_t*>(from)[i];
    }
  } else {
    for (int h = 0; h < Proto::kHeld; ++h) {
      const int i = (first + h) * 8;
      words[h] = i < kUnitBytes ? load_bytes(from + i, bytes - at - i) : 0;
    }
  }
}
template <class Proto, class Block>
GANTRY_HD void store_unit(const Block& block, std::byte* data, std::int32_t unit,
                          std::int32_t bytes, const std::uint64_t (&words)[Proto::kHeld]) {
  constexpr std::int32_t kUnitBytes = Proto::kUnitWords * 8;
  const int first = Proto::first_word(block);
  const std::int32_t at = unit * kUnitBytes;
  std::byte* const to = data + at;
  const bool is_whole = at + kUnitBytes <= bytes && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
  for (int h = 0; h < Proto::kHeld; ++h) {
    const int i = first + h;
    if (i >= Proto::kUnitWords) continue;
    if (is_whole) [[likely]] {
      reinterpret_cast<std::uint64_t*>(to)[i] = words[h];
    } else {
      store_bytes(to + i * 8, bytes - at - i * 8, words[h]);
    }
  }
}

}  // namespace gantry::protocol
