#include "job/flight_file.hpp"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include <gantry/core/dtype.hpp>
#include <gantry/core/env.hpp>

#include "core/rounding.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::flight {

namespace {

constexpr int kMaxRanks = 4096;

// Of one rank, for places of BlockCounts.
constexpr std::size_t kBlockCountsBytes = 16 << 10;

std::size_t block_counts_bytes(int ranks) {
  return BlockCounts::words_for(ranks) * sizeof(std::uint64_t);
}

// Places of each rank.
std::size_t block_counts_kept(int ranks) {
  return std::max<std::size_t>(1, kBlockCountsBytes / block_counts_bytes(ranks));
}

template <std::size_t Count>
std::string name_of(const Name (&names)[Count], std::uint8_t index) {
  if (index >= Count || names[index].text[0] == '\0') return fmt::format("<{}>", index);
  return escaped_field(names[index].text);
}

}  // namespace

// Note [Reading an entry while it is written]
// The ticket is 0 while words change, and readers compare it before and after the copy. Words are
// copied one by one as relaxed atomics. A reader that races with a writer thus reads a mixed entry
// without undefined behaviour, and discards it.
void Entry::put(std::uint64_t ticket, const Record& record) noexcept {
  std::uint64_t words[sizeof(Record) / 8];
  std::memcpy(words, &record, sizeof record);
  ticket_.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < std::size(words); ++i) {
    words_[i].store(words[i], std::memory_order_release);
  }
  ticket_.store(ticket, std::memory_order_release);
}

std::optional<Record> Entry::get(std::uint64_t ticket) const noexcept {
  if (ticket_.load(std::memory_order_acquire) != ticket) return std::nullopt;
  std::uint64_t words[sizeof(Record) / 8];
  for (std::size_t i = 0; i < std::size(words); ++i) {
    words[i] = words_[i].load(std::memory_order_acquire);
  }
  if (ticket_.load(std::memory_order_relaxed) != ticket) return std::nullopt;
  Record record;
  std::memcpy(&record, words, sizeof record);
  return record;
}

void BlockCounts::put(std::uint64_t number, std::span<const std::int64_t> sends,
                      std::span<const std::int64_t> receives) noexcept {
  words_[0].store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic<std::uint64_t>* word = words_ + 1;
  for (const auto counts : {sends, receives}) {
    for (const std::int64_t count : counts) {
      (word++)->store(static_cast<std::uint64_t>(count), std::memory_order_release);
    }
  }
  words_[0].store(number, std::memory_order_release);
}

std::optional<std::vector<std::int64_t>> BlockCounts::get(std::uint64_t number, int ranks) const {
  if (words_[0].load(std::memory_order_acquire) != number) return std::nullopt;
  std::vector<std::int64_t> counts(words_for(ranks) - 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = static_cast<std::int64_t>(words_[i + 1].load(std::memory_order_acquire));
  }
  if (words_[0].load(std::memory_order_relaxed) != number) return std::nullopt;
  return counts;
}

std::string Detail::pack() const {
  constexpr std::size_t kMost = sizeof(Rank::detail) - 1;
  constexpr std::size_t kMostOfRanks = 96;
  constexpr std::size_t kMostOfCall = 80;
  std::string rest;
  for (const int rank : ranks) {
    if (rest.size() > kMostOfRanks) break;
    rest += fmt::format("{} ", rank);
  }
  rest += '\0';
  for (const std::string& call : calls) rest += call.substr(0, kMostOfCall) + '\0';
  rest = rest.substr(0, kMost / 2 + kMostOfRanks);
  return text.substr(0, kMost - 1 - rest.size()) + '\0' + rest;
}

Detail Detail::of(const View& view, const Diagnosis& diagnosis) {
  const int size = view.header().ranks;
  if (diagnosis.reason == Reason::none || diagnosis.author >= size) return {};
  const auto& written = view.rank(diagnosis.author).detail;
  std::string_view rest(written, sizeof written);
  const auto take = [&] {
    const std::string_view field = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    return escape_control_characters(field, LineEnds::escape);
  };
  Detail detail;
  detail.text = take();
  std::istringstream ranks(take());
  for (int rank = 0; ranks >> rank;) {
    if (rank >= 0 && rank < size) detail.ranks.push_back(rank);
  }
  for (std::string call = take(); !call.empty(); call = take()) detail.calls.push_back(call);
  return detail;
}

Progress Words::progress(Queue queue) const noexcept {
  const auto load = [](const std::uint64_t& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  };
  const int direction = queue == Queue::send ? 0 : 1;
  const bool is_message = queue != Queue::collective;
  // The end first: a call that ends between the looks counts as under way.
  const std::uint64_t ended = load(is_message ? message_finished[direction] : finished);
  const std::uint64_t began = load(is_message ? message_started[direction] : started);
  constexpr std::uint64_t kNumber = (std::uint64_t{1} << kRunShift) - 1;
  return {.started = began & kNumber,
          .finished = ended & kNumber,
          .run = static_cast<std::uint32_t>(began >> kRunShift),
          .finished_run = static_cast<std::uint32_t>(ended >> kRunShift)};
}

namespace {

// Fields of a packed Diagnosis, from the lowest bit on: reason, rank, author, call.
constexpr unsigned kReasonBits = 4;
constexpr unsigned kRankBits = 12;
constexpr unsigned kAuthorAt = kReasonBits + kRankBits;
constexpr unsigned kCallAt = kAuthorAt + kRankBits;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
static_assert(kMaxRanks <= kRankMask + 1);

}  // namespace

std::uint64_t Diagnosis::pack() const {
  const std::uint64_t named = call >> (64 - kCallAt) == 0 ? call : 0;
  return static_cast<std::uint64_t>(reason) |
         (static_cast<std::uint64_t>(rank) & kRankMask) << kReasonBits |
         (static_cast<std::uint64_t>(author) & kRankMask) << kAuthorAt | named << kCallAt;
}

Diagnosis Diagnosis::unpack(std::uint64_t word) {
  if (word == 0) return {};
  return {.reason = static_cast<Reason>(word & ((1U << kReasonBits) - 1)),
          .rank = static_cast<int>(word >> kReasonBits & kRankMask),
          .call = word >> kCallAt,
          .author = static_cast<int>(word >> kAuthorAt & kRankMask)};
}

std::size_t View::lay_out(Header& header, int ranks, std::size_t page_bytes) {
  const auto count = static_cast<std::size_t>(ranks);
  header.ranks = ranks;
  header.page_bytes = page_bytes;
  header.ranks_at = sizeof(Header);
  header.words_at = round_up(header.ranks_at + count * sizeof(Rank), page_bytes);
  header.rings_at = header.words_at + count * page_bytes;
  header.block_counts_at = header.rings_at + count * kRing * sizeof(Entry);
  header.mailboxes_at = round_up(
      header.block_counts_at + count * block_counts_kept(ranks) * block_counts_bytes(ranks),
      alignof(Mailbox));
  header.bytes = round_up(header.mailboxes_at + count * sizeof(Mailbox), page_bytes);
  return header.bytes;
}

bool View::is_valid(const void* base, std::size_t bytes) {
  if (bytes < sizeof(Header)) return false;
  const auto& header = *static_cast<const Header*>(base);
  if (header.magic.load(std::memory_order_acquire) != kMagic || header.version != kVersion ||
      header.ranks < 1 || header.ranks > kMaxRanks || header.page_bytes < sizeof(Words) ||
      header.page_bytes > (std::uint64_t{1} << 24) || header.page_bytes % alignof(Rank) != 0) {
    return false;
  }
  Header expected;
  const std::size_t total = lay_out(expected, header.ranks, header.page_bytes);
  return header.bytes == total && bytes >= total && header.ranks_at == expected.ranks_at &&
         header.words_at == expected.words_at && header.rings_at == expected.rings_at &&
         header.block_counts_at == expected.block_counts_at &&
         header.mailboxes_at == expected.mailboxes_at;
}

BlockCounts View::block_counts(int which, std::uint64_t number) const {
  const std::size_t kept = block_counts_kept(header().ranks);
  const std::size_t place = static_cast<std::size_t>(which) * kept + number % kept;
  std::byte* const at =
      base_ + header().block_counts_at + place * block_counts_bytes(header().ranks);
  return BlockCounts(reinterpret_cast<std::atomic<std::uint64_t>*>(at));
}

template <class Matches>
std::optional<Record> View::find_newest(int which, Matches matches) const {
  const std::uint64_t newest = rank(which).recorded.load(std::memory_order_acquire);
  for (std::uint64_t back = 0; back < std::min<std::uint64_t>(newest, kRing); ++back) {
    const std::uint64_t ticket = newest - back;
    const std::optional<Record> record = ring(which)[ticket % kRing].get(ticket);
    if (record && matches(record->call)) return record;
  }
  return std::nullopt;
}

std::optional<Record> View::newest(int which) const {
  return find_newest(which, [](const Call&) { return true; });
}

std::uint64_t View::newest_number(int which, Queue wanted) const {
  const auto record = find_newest(which, [&](const Call& call) { return queue(call) == wanted; });
  return record ? static_cast<std::uint64_t>(record->call.number) : 0;
}

std::optional<Record> View::find(int which, Queue wanted, std::uint64_t number) const {
  return find_newest(which, [&](const Call& call) {
    return static_cast<std::uint64_t>(call.number) == number && queue(call) == wanted;
  });
}

std::optional<Record> View::find_message(int which, Queue wanted, int peer) const {
  return find_newest(which,
                     [&](const Call& call) { return queue(call) == wanted && call.root == peer; });
}

Queue View::queue(const Call& call) const {
  const std::uint8_t bits = style(call);
  return (bits & kTo) != 0 ? Queue::send : (bits & kFrom) != 0 ? Queue::recv : Queue::collective;
}

std::uint8_t View::style(const Call& call) const {
  const Header& names = header();
  return call.kind < std::size(names.kinds) ? names.kinds[call.kind].style : std::uint8_t{kTyped};
}

std::string View::text(const Call& call) const {
  const Header& names = header();
  return call_text(name_of(names.kinds, call.kind), style(call), name_of(names.ops, call.op),
                   name_of(names.algorithms, call.algorithm), call);
}

std::string View::text(const Record& record) const {
  const std::string tag = escaped_field(record.tag);
  return tag.empty() ? text(record.call) : fmt::format("{} tag={}", text(record.call), tag);
}

std::vector<int> job_ranks(const View& view, const std::vector<int>& ranks) {
  std::vector<int> of_job;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= view.header().ranks) continue;
    const std::uint32_t number = view.rank(rank).job_rank;
    if (number != 0) of_job.push_back(static_cast<int>(number - 1));
  }
  return of_job;
}

std::string call_text(std::string_view kind, std::uint8_t style, std::string_view op,
                      std::string_view algorithm, const Call& call) {
  if (call.ends_condition != 0) return "the end of graph_if or graph_while";
  std::string text(kind);
  const bool is_list = call.operands.list_size > 0;
  if (is_list) text += "_coalesced";
  if ((style & kReduces) != 0) text += fmt::format(" {}", op);
  if ((style & kTyped) != 0) {
    const bool known = call.dtype < static_cast<std::uint8_t>(kDTypeCount);
    const std::string shapes = call.operands.text();
    text += ' ';
    if (!is_list) text += known ? name(static_cast<DType>(call.dtype)) : "?";
    text += !shapes.empty()  ? shapes
            : call.count < 0 ? "[uneven]"
                             : fmt::format("[{}]", call.count);
  }
  if ((style & kRooted) != 0) text += fmt::format(" root={}", call.root);
  if ((style & kTo) != 0) text += fmt::format(" to {}", call.root);
  if ((style & kFrom) != 0) text += fmt::format(" from {}", call.root);
  if (call.scale != 1) text += fmt::format(" scale={}", call.scale);
  if (call.window_offset != 0) {
    text += fmt::format(" registered {}+{}", registration_of(call.window_offset),
                        offset_of(call.window_offset));
  }
  if (call.reproducible == 0) text += " reproducible=false";
  if (call.algorithm != 0) text += fmt::format(" algorithm={}", algorithm);
  if (call.blocks != 0) text += fmt::format(" blocks={}", call.blocks);
  return text;
}

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gantry::flight
