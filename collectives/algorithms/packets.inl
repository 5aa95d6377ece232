// An exchange in packets that carry data and flag together: no staging, no barrier.
#pragma once

#include <cstring>

#include "collectives/protocol/signal.hpp"
#include "kernels/impl/fold.inl"

namespace gantry::protocol {

// Note [Packets]
// A packet holds 8 bytes of payload and, beside each half, a flag made of the operation's number
// (and the digest of the call), and is written by one 16-byte store. A reader takes a half when its
// flag is the one it expects, so nothing has to be ordered or cleared: what an earlier operation
// left has another number, and what a peer with another call sent never fits. (NCCL's LL protocol.)
// Rows of packets come twice; see Note [Signals] why two suffice.

// Up to 8 bytes at `at`, of any alignment.
GANTRY_NOINLINE GANTRY_HD inline std::uint64_t load_bytes(const std::byte* at, std::int64_t bytes) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8 && i < bytes; ++i) word |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return word;
}
GANTRY_NOINLINE GANTRY_HD inline void store_bytes(std::byte* at, std::int64_t bytes,
                                                  std::uint64_t word) {
  for (int i = 0; i < 8 && i < bytes; ++i) at[i] = static_cast<std::byte>(word >> (8 * i));
}

// The 8 bytes at `data` + 8 `index`, zero past `bytes`.
GANTRY_HD inline std::uint64_t load_word(const std::byte* data, std::int64_t index,
                                         std::int64_t bytes) {
  const std::byte* at = data + index * 8;
  const bool whole = index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
  return whole ? *reinterpret_cast<const std::uint64_t*>(at) : load_bytes(at, bytes - index * 8);
}
GANTRY_HD inline void store_word(std::byte* data, std::int64_t index, std::int64_t bytes,
                                 std::uint64_t word) {
  std::byte* at = data + index * 8;
  const bool whole = index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
  if (whole) {
    *reinterpret_cast<std::uint64_t*>(at) = word;
  } else {
    store_bytes(at, bytes - index * 8, word);
  }
}

// Folds one 8-byte word of elements per rank, as F does.
template <class F, class Block>
class WordFold {
 public:
  static constexpr int kElements = 8 / sizeof(typename F::Stored);

  GANTRY_HD explicit WordFold(const Combination& how) : how_(how) {}
  GANTRY_HD void add(std::uint64_t word, bool first) {
    typename F::Stored elements[kElements];
    memcpy(static_cast<void*>(elements), &word, sizeof word);
    for (int i = 0; i < kElements; ++i) {
      const auto value = Block::scaled(F::load(elements[i]), how_.scale);
      acc_[i] = first ? value : F::combine(acc_[i], value);
    }
  }
  GANTRY_HD std::uint64_t result() const {
    typename F::Stored elements[kElements];
    for (int i = 0; i < kElements; ++i) elements[i] = F::finish(acc_[i], how_.divisor);
    std::uint64_t word;
    memcpy(&word, elements, sizeof word);
    return word;
  }

 private:
  const Combination& how_;
  typename F::Acc acc_[kElements] = {};
};

// After a long wait for packets; true, with the reason reported, to give up. They may be missing
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

// What an operation in packets needs to send and receive them.
// A thread waits for `Batch` packets at once: more are more code, which takes its time, too.
template <class Block, int Batch>
class PacketLink {
 public:
  GANTRY_HD PacketLink(Block& block, const Group& group, std::uint64_t call, std::uint32_t digest,
                       std::uint32_t sequence)
      : block_(block), group_(group), call_(call), digest_(digest), sequence_(sequence) {}

  // Row `sender` of `owner`'s packets; an operation of two phases has rows for each.
  GANTRY_HD Packet* row(int owner, int phase, int sender) const {
    const Layout& layout = group_.layout;
    const std::int64_t parity = sequence_ & 1;
    const std::int64_t row = (parity * kPacketPhases + phase) * group_.size + sender;
    return reinterpret_cast<Packet*>(group_.workspaces[owner] + layout.packets +
                                     row * layout.packet_stride);
  }

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

  GANTRY_HD void send(Packet* to, std::uint64_t word) {
    block_.write(to, Packet{static_cast<std::uint32_t>(word), low_flag(),
                            static_cast<std::uint32_t>(word >> 32), high_flag()});
  }

  // words[k] = the payload of packet i of rank first + k, for all k whose ranks are among `from`.
  // A thread that waits in vain gives up, and says why.
  GANTRY_HD bool receive(int phase, std::uint32_t from, int first, std::int32_t i,
                         std::uint64_t (&words)[Batch]) {
    const auto* packets = reinterpret_cast<const std::byte*>(row(group_.rank, phase, first) + i);
    std::uint32_t waiting = from >> first & ((1u << Batch) - 1);
    GANTRY_ROLLED
    for (std::uint32_t spins = 1; waiting != 0; ++spins) {
      Packet seen[Batch];
      for (int k = 0; k < Batch; ++k) {
        if (!has(waiting, k)) continue;
        seen[k] = block_.read(reinterpret_cast<const Packet*>(
            packets + k * std::int64_t{group_.layout.packet_stride}));
      }
      for (int k = 0; k < Batch; ++k) {
        if (!has(waiting, k) || seen[k].low_flag != low_flag() ||
            seen[k].high_flag != high_flag()) {
          continue;
        }
        words[k] = static_cast<std::uint64_t>(seen[k].high) << 32 | seen[k].low;
        waiting &= ~(1u << k);
      }
      if (waiting != 0 && spins % kPollsPerLook == 0) {
        block_.note_told();
        if (is_in_vain(block_, group_, call_, sequence_, digest_)) return false;
      }
      block_.pause(spins);
    }
    return true;
  }

 private:
  GANTRY_HD std::uint32_t low_flag() const { return sequence_ << 1 | 1; }
  GANTRY_HD std::uint32_t high_flag() const { return digest_ ^ sequence_; }

  Block& block_;
  const Group& group_;
  std::uint64_t call_;
  std::uint32_t digest_;
  std::uint32_t sequence_;
};

template <class T, int Batch, class Block>
class PacketShare {
 public:
  GANTRY_HD PacketShare(Block& block, const PacketExchange& plan, std::uint32_t sequence)
      : block_(block),
        plan_(plan),
        group_(plan.group),
        link_(block, plan.group, plan.call, plan.digest, sequence) {
    // Neighbouring blocks take neighbouring runs, so that stores of a run travel together.
    const std::int32_t words = (plan.bytes + 7) / 8;
    const std::int32_t run = (words + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(words, first_, run));
  }

  GANTRY_HD PacketLink<Block, Batch>& link() { return link_; }

  GANTRY_HD void push() {
    if (plan_.offers == 0) return;
    block_.for_each(count_, [&](std::int64_t at) {
      const auto i = first_ + static_cast<std::int32_t>(at);
      std::uint64_t word = 0;
      if (plan_.offer_stride == 0) word = load_word(plan_.in, i, plan_.bytes);
      GANTRY_ROLLED
      for (int p = next(group_.rank); p != group_.rank; p = next(p)) {
        if (!has(plan_.offers, p)) continue;
        if (plan_.offer_stride != 0) word = load_word(offered_to(p), i, plan_.bytes);
        link_.send(&link_.row(p, 0, group_.rank)[i], word);
      }
    });
  }

  // True if packets tell this rank that every peer entered, and of any mismatch before it writes a
  // result.
  GANTRY_HD bool hears_all() const {
    return plan_.bytes > 0 && plan_.takes == everyone(group_.size);
  }

  // A thread that waits in vain gives up, and says why.
  GANTRY_HD void take() {
    if (plan_.takes == 0) return;
    bool complete = true;
    if constexpr (kCombines<T>) {
      kernels::with_fold<T>(plan_.how.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
          block_.for_each(count_, [&](std::int64_t at) {
            complete = complete && fold_word<F>(first_ + static_cast<std::int32_t>(at));
          });
        }
      });
    } else {
      block_.for_each(count_, [&](std::int64_t at) {
        complete = complete && copy_word(first_ + static_cast<std::int32_t>(at));
      });
    }
  }

 private:
  GANTRY_HD int next(int rank) const { return rank + 1 == group_.size ? 0 : rank + 1; }
  GANTRY_HD const std::byte* offered_to(int p) const {
    return plan_.in + std::int64_t{p} * plan_.offer_stride;
  }

  // Word i of ranks first … first + Batch - 1, as far as they are and offer one.
  GANTRY_HD bool receive(int first, std::int32_t i, std::uint64_t (&words)[Batch]) {
    // This rank's own word, while the others are on their way.
    std::uint64_t own = 0;
    if (has(plan_.takes, group_.rank)) own = load_word(offered_to(group_.rank), i, plan_.bytes);
    const std::uint32_t peers = plan_.takes & ~(std::uint32_t{1} << group_.rank);
    const bool complete = link_.receive(0, peers, first, i, words);
    for (int k = 0; k < Batch; ++k) {
      if (first + k == group_.rank) words[k] = own;
    }
    return complete;
  }

  GANTRY_HD bool copy_word(std::int32_t i) {
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        const int p = first + k;
        if (p >= group_.size || !has(plan_.takes, p)) continue;
        store_word(plan_.out + std::int64_t{p} * plan_.take_stride, i, plan_.bytes, words[k]);
      }
    }
    return true;
  }

  template <class F>
  GANTRY_HD bool fold_word(std::int32_t i) {
    WordFold<F, Block> folded(plan_.how);
    GANTRY_ROLLED
    for (int first = 0; first < group_.size; first += Batch) {
      std::uint64_t words[Batch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < Batch; ++k) {
        if (first + k < group_.size) folded.add(words[k], first + k == 0);
      }
    }
    store_word(plan_.out, i, plan_.bytes, folded.result());
    return true;
  }

  Block& block_;
  const PacketExchange& plan_;
  const Group& group_;
  PacketLink<Block, Batch> link_;
  std::int32_t first_ = 0;  // word of this block
  std::int32_t count_ = 0;
};

template <class T, int Batch, class Block>
GANTRY_HD void exchange_packets(Block& block, const PacketExchange& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  PacketShare<T, Batch, Block> share(block, plan, sequence);
  share.push();
  share.link().announce();
  // Without packets from everyone, the entries say that all are there and call the same.
  if (share.hears_all() || share.link().await_announced()) share.take();
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
