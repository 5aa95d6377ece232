// LL and LL128: protocols that send data together with flags, so that no store must be ordered.
#pragma once

#include <cstring>

#include "collectives/protocol/signal.hpp"
#include "core/code_size.hpp"

namespace gantry::protocol {

// Note [LL and LL128]
// Both protocols send units of payload words and a flag. The flag is made of the epoch and the
// digest of the call. A reader accepts a unit only if its flag is the expected one: a unit of an
// earlier operation has another epoch, and a unit of another call another digest. Units of one
// protocol never lie where units of the other do, so payload is never read as a flag. Nothing is
// cleared between operations.
//
// LL: one thread stores 16 bytes at once: each 4-byte half of a word, followed by 4 bytes of the
//   flag. Half of the bytes on the link are payload. (NCCL's LL.)
// LL128: 15 words and, last, a flag. On GPUs 8 neighbouring threads store 16 bytes each in one
//   instruction. The link must deliver these parts in address order. NVLink does; other links need
//   not. LL128 is therefore used only between ranks that NVLinks connect. A line need not arrive
//   whole, and the 8 loads of a reader need not happen together. A reader therefore first polls the
//   flag only. It loads the line once all threads of the warp know that the flag has arrived.
//   (NCCL's LL128; since 2.17.1 it loads lines again after their flags.)
//
// A thread holds `kHeld` words of a unit; in LL128 the last thread of a line holds one payload word
// less. All threads of a warp run a loop over units together. is_there() is false for threads past
// the last unit, and agree() votes over the warp.

template <class Unit>
GANTRY_HD bool is_aligned(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Unit) == 0;
}
// Loads a word unit by unit, with all loads in flight at once.
template <class Unit>
GANTRY_HD std::uint64_t load_units(const std::byte* at, std::int64_t units) {
  constexpr int kUnits = 8 / sizeof(Unit);
  Unit loaded[kUnits];
  for (int i = 0; i < kUnits; ++i) {
    loaded[i] = i < units ? reinterpret_cast<const Unit*>(at)[i] : Unit{0};
  }
  std::uint64_t word = 0;
  for (int i = 0; i < kUnits; ++i) {
    word |= static_cast<std::uint64_t>(loaded[i]) << (8 * sizeof(Unit) * static_cast<unsigned>(i));
  }
  return word;
}
template <class Unit>
GANTRY_HD void store_units(std::byte* at, std::int64_t units, std::uint64_t word) {
  constexpr int kUnits = 8 / sizeof(Unit);
  for (int i = 0; i < kUnits && i < units; ++i) {
    reinterpret_cast<Unit*>(at)[i] =
        static_cast<Unit>(word >> (8 * sizeof(Unit) * static_cast<unsigned>(i)));
  }
}
// Loads up to 8 bytes at `at`, of any alignment; `bytes` may be negative. An unaligned word is
// loaded by the largest elements that its alignment allows.
GANTRY_NOINLINE GANTRY_HD inline std::uint64_t load_bytes(const std::byte* at, std::int64_t bytes) {
  if (bytes < 8 || !is_aligned<std::uint16_t>(at)) return load_units<std::uint8_t>(at, bytes);
  if (!is_aligned<std::uint32_t>(at)) return load_units<std::uint16_t>(at, 4);
  if (!is_aligned<std::uint64_t>(at)) return load_units<std::uint32_t>(at, 2);
  return *reinterpret_cast<const std::uint64_t*>(at);
}
GANTRY_NOINLINE GANTRY_HD inline void store_bytes(std::byte* at, std::int64_t bytes,
                                                  std::uint64_t word) {
  if (bytes < 8 || !is_aligned<std::uint16_t>(at))
    return store_units<std::uint8_t>(at, bytes, word);
  if (!is_aligned<std::uint32_t>(at)) return store_units<std::uint16_t>(at, 4, word);
  if (!is_aligned<std::uint64_t>(at)) return store_units<std::uint32_t>(at, 2, word);
  *reinterpret_cast<std::uint64_t*>(at) = word;
}

// The flag of an operation; `low` is not 0, so that zeroed memory holds none.
struct LlFlag {
  std::uint32_t low;
  std::uint32_t high;

  GANTRY_HD static LlFlag of(std::uint32_t epoch, std::uint32_t digest) {
    return {epoch << 1 | 1, digest ^ epoch};
  }
};

// The LL protocol.
template <class Block>
struct Ll {
  using Unit = LlPacket;
  static constexpr int kUnitWords = 1;
  static constexpr int kHeld = 1;
  static constexpr int kShots = 1;  // rows of each sender
  // True if the load of a flag also loads the payload.
  static constexpr bool kIsOneLoad = true;

  GANTRY_HD static std::uint32_t rows(const Group& group) { return group.layout.ll; }
  GANTRY_HD static std::uint32_t row_bytes(const Group&) { return kLlRowBytes; }

  template <class F>
  GANTRY_HD static void for_each(Block& block, std::int32_t units, const F& f) {
    block.for_each(units, f);
  }
  GANTRY_HD static constexpr bool is_there(std::int64_t, std::int32_t) { return true; }
  GANTRY_HD static constexpr int first_word(const Block&) { return 0; }
  GANTRY_HD static bool agree(Block&, bool flag) { return flag; }

  GANTRY_HD static void send(Block& block, Unit* to, const std::uint64_t (&words)[kHeld],
                             LlFlag flag) {
    block.write_ll(to, LlPacket{static_cast<std::uint32_t>(words[0]), flag.low,
                                static_cast<std::uint32_t>(words[0] >> 32), flag.high});
  }
  struct Seen {
    LlPacket packet;
  };
  GANTRY_HD static void poll(Block& block, const Unit* from, Seen& seen) {
    seen.packet = block.read_ll(from);
  }
  GANTRY_HD static bool has_arrived(Block&, bool is_awaited, const Seen& seen, LlFlag flag) {
    return is_awaited && seen.packet.low_flag == flag.low && seen.packet.high_flag == flag.high;
  }
  GANTRY_HD static void unpack(const Seen& seen, std::uint64_t (&words)[kHeld]) {
    words[0] = static_cast<std::uint64_t>(seen.packet.high) << 32 | seen.packet.low;
  }
};

// The LL128 protocol.
template <class Block>
struct Ll128 {
  using Unit = Ll128Line;
  static constexpr int kUnitWords = kLl128Words - 1;
  static constexpr int kHeld = Block::kLl128WordsHeld;
  static constexpr int kShots = kLl128Shots;
  static constexpr bool kIsOneLoad = false;

  GANTRY_HD static std::uint32_t rows(const Group& group) {
    return ll128_begin(group.layout, group.size);
  }
  GANTRY_HD static std::uint32_t row_bytes(const Group& group) {
    return group.layout.ll128_row_bytes;
  }

  template <class F>
  GANTRY_HD static void for_each(Block& block, std::int32_t units, const F& f) {
    block.for_each_ll128_line(units, f);
  }
  GANTRY_HD static constexpr bool is_there(std::int64_t unit, std::int32_t units) {
    return unit < units;
  }
  GANTRY_HD static int first_word(const Block& block) { return block.first_ll128_word(); }
  GANTRY_HD static bool agree(Block& block, bool flag) { return block.any_of_warp(flag); }

  GANTRY_HD static void send(Block& block, Unit* to, const std::uint64_t (&words)[kHeld],
                             LlFlag flag) {
    std::uint64_t held[kHeld];
    for (int h = 0; h < kHeld; ++h) held[h] = words[h];
    if (holds_flag(block)) held[kHeld - 1] = word_of(flag);
    block.write_ll128(to, held);
  }
  struct Seen {
    std::uint64_t flag = 0;  // in the thread that holds it
  };
  GANTRY_HD static void poll(Block& block, const Unit* from, Seen& seen) {
    if (holds_flag(block)) seen.flag = block.read_ll128_flag(from);
  }
  GANTRY_HD static bool has_arrived(Block& block, bool is_awaited, const Seen& seen, LlFlag flag) {
    return block.any_of_ll128_line(is_awaited && holds_flag(block) && seen.flag == word_of(flag));
  }
  // Loads the payload of a unit that has arrived.
  GANTRY_HD static void load(Block& block, const Unit* from, std::uint64_t (&words)[kHeld]) {
    block.read_ll128(from, words);
  }

 private:
  GANTRY_HD static bool holds_flag(const Block& block) {
    return block.first_ll128_word() + kHeld == kLl128Words;
  }
  GANTRY_HD static std::uint64_t word_of(LlFlag flag) {
    return static_cast<std::uint64_t>(flag.high) << 32 | flag.low;
  }
};

}  // namespace gantry::protocol
