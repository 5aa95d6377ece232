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

// Packets that a thread waits for at once.
inline constexpr int kPacketBatch = 8;

// The 8 bytes at `data` + 8 `index`, zero past `bytes`.
GANTRY_HD inline std::uint64_t load_word(const std::byte* data, std::int64_t index,
                                         std::int64_t bytes) {
  const std::byte* at = data + index * 8;
  if (index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
    return *reinterpret_cast<const std::uint64_t*>(at);
  }
  std::uint64_t word = 0;
  for (int i = 0; i < 8 && index * 8 + i < bytes; ++i) {
    word |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  }
  return word;
}

GANTRY_HD inline void store_word(std::byte* data, std::int64_t index, std::int64_t bytes,
                                 std::uint64_t word) {
  std::byte* at = data + index * 8;
  if (index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
    *reinterpret_cast<std::uint64_t*>(at) = word;
    return;
  }
  for (int i = 0; i < 8 && index * 8 + i < bytes; ++i) {
    at[i] = static_cast<std::byte>(word >> (8 * i));
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

template <class T, class Block>
class PacketShare {
 public:
  GANTRY_HD PacketShare(Block& block, const PacketExchange& plan, std::uint32_t sequence)
      : block_(block), plan_(plan), group_(plan.group), sequence_(sequence) {
    // Neighbouring blocks take neighbouring runs, so that stores of a run travel together.
    const std::int32_t words = (plan.bytes + 7) / 8;
    const std::int32_t run = (words + block.count() - 1) / block.count();
    first_ = run * block.index();
    count_ = static_cast<std::int32_t>(clipped(words, first_, run));
  }

  // Tells all peers what is called. Nothing waits for it but who waits in vain, and those that
  // do not hear of everyone otherwise.
  GANTRY_HD void announce() {
    if (block_.index() != 0) return;
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      block_.post(&pad_of(group_, p).entry[sequence_ & 1][0][group_.rank],
                  signal(sequence_, plan_.digest));
    });
  }

  GANTRY_HD void push() {
    if (plan_.offers == 0) return;
    block_.for_each(count_, [&](std::int64_t at) {
      const auto i = first_ + static_cast<std::int32_t>(at);
      std::uint64_t word = 0;
      if (plan_.offer_stride == 0) word = load_word(plan_.in, i, plan_.bytes);
      for (int p = next(group_.rank); p != group_.rank; p = next(p)) {
        if (!has(plan_.offers, p)) continue;
        if (plan_.offer_stride != 0) word = load_word(offered_to(p), i, plan_.bytes);
        block_.write(&packets_at(p, group_.rank)[i],
                     Packet{static_cast<std::uint32_t>(word), sequence_,
                            static_cast<std::uint32_t>(word >> 32), high_flag()});
      }
    });
  }

  // True if packets tell this rank that every peer entered, and of any mismatch before it writes a
  // result.
  GANTRY_HD bool hears_all() const {
    return plan_.bytes > 0 && plan_.takes == ~std::uint32_t{0} >> (32 - group_.size);
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
  GANTRY_HD static bool has(std::uint32_t ranks, int rank) { return (ranks >> rank & 1) != 0; }
  GANTRY_HD int next(int rank) const { return rank + 1 == group_.size ? 0 : rank + 1; }
  GANTRY_HD std::uint32_t high_flag() const { return plan_.digest ^ sequence_; }
  GANTRY_HD const std::byte* offered_to(int p) const {
    return plan_.in + std::int64_t{p} * plan_.offer_stride;
  }

  GANTRY_HD Packet* packets_at(int owner, int sender) const {
    const Layout& layout = group_.layout;
    const std::int64_t row = static_cast<std::int64_t>(sequence_ & 1) * group_.size + sender;
    return reinterpret_cast<Packet*>(group_.workspaces[owner] + layout.packets +
                                     row * layout.packet_stride);
  }

  // Word i of ranks first … first + kPacketBatch - 1, as far as they are and offer one.
  GANTRY_HD bool receive(int first, std::int32_t i, std::uint64_t (&words)[kPacketBatch]) {
    bool waiting[kPacketBatch];
    for (int k = 0; k < kPacketBatch; ++k) {
      const int p = first + k;
      const bool taken = p < group_.size && has(plan_.takes, p);
      waiting[k] = taken && p != group_.rank;
      // This rank's own word, while the others are on their way.
      if (taken && p == group_.rank) words[k] = load_word(offered_to(p), i, plan_.bytes);
    }
    for (std::uint32_t spins = 1;; ++spins) {
      Packet seen[kPacketBatch];
      for (int k = 0; k < kPacketBatch; ++k) {
        if (waiting[k]) seen[k] = block_.read(&packets_at(group_.rank, first + k)[i]);
      }
      bool any = false;
      for (int k = 0; k < kPacketBatch; ++k) {
        if (!waiting[k]) continue;
        if (seen[k].low_flag == sequence_ && seen[k].high_flag == high_flag()) {
          words[k] = static_cast<std::uint64_t>(seen[k].high) << 32 | seen[k].low;
          waiting[k] = false;
        } else {
          any = true;
        }
      }
      if (!any) return true;
      if (spins % kPollsPerLook == 0 && !look_at(first, waiting)) return false;
      block_.pause(spins);
    }
  }

  GANTRY_HD bool look_at(int first, const bool (&waiting)[kPacketBatch]) {
    for (int k = 0; k < kPacketBatch; ++k) {
      if (!waiting[k]) continue;
      const int p = first + k;
      const Outcome outcome = look(block_, group_, p, plan_.call, sequence_, plan_.digest);
      if (outcome == Outcome::done) continue;
      fail(block_, group_, outcome, p, plan_.call, sequence_);
      return false;
    }
    return true;
  }

  GANTRY_HD bool copy_word(std::int32_t i) {
    for (int first = 0; first < group_.size; first += kPacketBatch) {
      std::uint64_t words[kPacketBatch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < kPacketBatch; ++k) {
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
    for (int first = 0; first < group_.size; first += kPacketBatch) {
      std::uint64_t words[kPacketBatch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < kPacketBatch; ++k) {
        if (first + k < group_.size) folded.add(words[k], first + k == 0);
      }
    }
    store_word(plan_.out, i, plan_.bytes, folded.result());
    return true;
  }

  Block& block_;
  const PacketExchange& plan_;
  const Group& group_;
  std::uint32_t sequence_;
  std::int32_t first_ = 0;  // word of this block
  std::int32_t count_ = 0;
};

template <class T, class Block>
GANTRY_HD void exchange_packets(Block& block, const PacketExchange& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  PacketShare<T, Block> share(block, plan, sequence);
  share.push();
  share.announce();
  // Without packets from everyone, the entries say that all are there and call the same.
  if (share.hears_all() ||
      await_entries(block, plan.group, plan.call, 0, sequence, [&](int) { return plan.digest; })) {
    share.take();
  }
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
