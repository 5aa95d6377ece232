// What operations over wires have in common: whom they hear of, and how elements are folded.
#pragma once

#include <cstring>

#include "collectives/algorithms/wires.inl"
#include "kernels/impl/nary.inl"

namespace gantry::protocol {

// Folds `Words` words of 8 bytes of elements per rank, as F does.
template <class F, int Words, class Block>
class WordFold {
 public:
  static constexpr int kElements = 8 * Words / static_cast<int>(sizeof(typename F::Stored));

  GANTRY_HD explicit WordFold(const Combination& how) : how_(how) {}
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
  const Combination& how_;
  typename F::Acc acc_[kElements] = {};
};

// After a long wait for units; true, with the reason reported, to give up. They may be missing
// because of a rank that sends none here: who owns a part does not make it of calls that differ.
// Nobody gives up before all ranks have entered: until then one may still be in the operation
// before, whose memory the next would overwrite (Note [Signals]).
template <class Block>
GANTRY_NOINLINE GANTRY_HD bool is_in_vain(Block block, const Group& group, std::uint64_t call,
                                          std::uint32_t sequence, std::uint32_t digest) {
  int absent = -1;
  int other = -1;
  GANTRY_ROLLED
  for (int p = 0; p < group.size; ++p) {
    if (p == group.rank) continue;
    const Entry entry = entry_in(
        block.acquire(&pad_of(group, group.rank).entry[sequence & 1][0][p]), sequence, digest);
    if (entry == Entry::absent) absent = p;
    if (entry == Entry::differs) other = p;
  }
  Outcome outcome = look(block, group, call, sequence);
  if (outcome == Outcome::done && absent < 0 && other >= 0) outcome = Outcome::mismatch;
  if (outcome == Outcome::done) return false;
  fail(block, group, outcome, outcome == Outcome::mismatch ? other : absent, call, sequence);
  return true;
}

// What an operation over a wire needs to send and receive its units.
// A thread waits for units of `Batch` ranks at once: more are more code, which takes its time, too.
template <class Wire, int Batch, class Block>
class WireLink {
 public:
  using Unit = typename Wire::Unit;
  static constexpr int kHeld = Wire::kHeld;

  GANTRY_HD WireLink(Block& block, const Group& group, std::uint64_t call, std::uint32_t digest,
                     std::uint32_t sequence)
      : block_(block),
        group_(group),
        call_(call),
        digest_(digest),
        sequence_(sequence),
        sent_at_(row_of(group.rank)) {}

  // Tells all peers what is called. Nothing waits for it but who waits in vain, and those that
  // do not hear of everyone otherwise.
  GANTRY_HD void announce() {
    if (block_.index() != 0) return;
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      block_.post(&pad_of(group_, p).entry[sequence_ & 1][0][group_.rank],
                  signal(sequence_, digest_));
    });
  }
  GANTRY_HD bool await_announced() {
    return await_entries(block_, group_, call_, 0, sequence_, [&](int) { return digest_; });
  }

  // Sends what this thread holds of unit i to `owner`. An operation of two phases has a row for
  // each; in one of a single phase the first may run on into the second.
  GANTRY_HD void send(int owner, int phase, std::int32_t i, const std::uint64_t (&words)[kHeld]) {
    std::byte* const row = group_.workspaces[owner] + (sent_at_ + phase * Wire::row_bytes(group_));
    Wire::send(block_, reinterpret_cast<Unit*>(row) + i, words, flag());
  }

  // words[k] = what this thread holds of unit i of rank first + k, for all k whose ranks are among
  // `from`. Who waits in vain gives up, and says why.
  GANTRY_HD bool receive(int phase, std::uint32_t from, int first, std::int32_t i,
                         std::uint64_t (&words)[Batch][kHeld]) {
    const std::uint32_t stride = Wire::row_bytes(group_) * Wire::kPhases;
    const std::byte* const units =
        group_.workspaces[group_.rank] +
        (row_of(first) + phase * Wire::row_bytes(group_) + i * sizeof(Unit));
    std::uint32_t waiting = from >> first & ((1u << Batch) - 1);
    GANTRY_ROLLED
    for (std::uint32_t spins = 1; Wire::agree(block_, waiting != 0); ++spins) {
      typename Wire::Seen seen[Batch];
      for (int k = 0; k < Batch; ++k) {
        if (!has(waiting, k)) continue;
        Wire::look(block_, reinterpret_cast<const Unit*>(units + std::size_t{k * stride}), seen[k]);
      }
      for (int k = 0; k < Batch; ++k) {
        if (!Wire::has_come(block_, has(waiting, k), seen[k], flag())) continue;
        if constexpr (Wire::kIsOneLoad) Wire::take(seen[k], words[k]);
        waiting &= ~(1u << k);
      }
      if (spins % kPollsPerLook == 0 && Wire::agree(block_, waiting != 0)) [[unlikely]] {
        block_.note_told();
        if (Wire::agree(block_, is_in_vain(block_, group_, call_, sequence_, digest_))) {
          return false;
        }
      }
      block_.pause(spins);
    }
    if constexpr (!Wire::kIsOneLoad) {
      for (int k = 0; k < Batch; ++k) {
        if (!has(from >> first, k)) continue;
        Wire::load(block_, reinterpret_cast<const Unit*>(units + std::size_t{k * stride}),
                   words[k]);
      }
    }
    return true;
  }

 private:
  GANTRY_HD WireFlag flag() const { return WireFlag::of(sequence_, digest_); }
  // Where the rows of `sender` begin in any workspace; in 32 bits, for less code.
  GANTRY_HD std::uint32_t row_of(int sender) const {
    const std::uint32_t row = (sequence_ & 1) * group_.size + sender;
    return Wire::rows(group_) + row * Wire::kPhases * Wire::row_bytes(group_);
  }

  Block& block_;
  const Group& group_;
  std::uint64_t call_;
  std::uint32_t digest_;
  std::uint32_t sequence_;
  std::uint32_t sent_at_;
};

// The words that a thread holds of unit `unit` of the `bytes` at `data`; zero past these. Whole
// units in aligned arrays, which is most, are a branch and as many accesses as there are words.
template <class Wire, class Block>
GANTRY_HD void load_unit(const Block& block, const std::byte* data, std::int32_t unit,
                         std::int32_t bytes, std::uint64_t (&words)[Wire::kHeld]) {
  constexpr std::int32_t kUnitBytes = Wire::kUnitWords * 8;
  const int first = Wire::first_word(block);
  const std::int32_t at = unit * kUnitBytes;
  const std::byte* const from = data + at;
  if (at + kUnitBytes <= bytes && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) [[likely]] {
    for (int h = 0; h < Wire::kHeld; ++h) {
      // Who holds the flag reads some word in its place.
      const int i = first + h < Wire::kUnitWords ? first + h : first;
      words[h] = reinterpret_cast<const std::uint64_t*>(from)[i];
    }
  } else {
    for (int h = 0; h < Wire::kHeld; ++h) {
      const int i = (first + h) * 8;
      words[h] = i < kUnitBytes ? load_bytes(from + i, bytes - at - i) : 0;
    }
  }
}
template <class Wire, class Block>
GANTRY_HD void store_unit(const Block& block, std::byte* data, std::int32_t unit,
                          std::int32_t bytes, const std::uint64_t (&words)[Wire::kHeld]) {
  constexpr std::int32_t kUnitBytes = Wire::kUnitWords * 8;
  const int first = Wire::first_word(block);
  const std::int32_t at = unit * kUnitBytes;
  std::byte* const to = data + at;
  const bool is_whole = at + kUnitBytes <= bytes && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
  for (int h = 0; h < Wire::kHeld; ++h) {
    const int i = first + h;
    if (i >= Wire::kUnitWords) continue;
    if (is_whole) [[likely]] {
      reinterpret_cast<std::uint64_t*>(to)[i] = words[h];
    } else {
      store_bytes(to + i * 8, bytes - at - i * 8, words[h]);
    }
  }
}

}  // namespace gantry::protocol
