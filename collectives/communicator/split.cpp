// Groups of some ranks of a group, by colors or by a list.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/group_name.hpp"
#include "collectives/communicator/impl.hpp"
#include "core/bytes.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

// The part of one rank in a split.
struct SplitPart {
  std::string call;  // that all ranks make alike, as text
  std::int32_t color = -1;
  std::int32_t key = 0;
  std::string name;

  std::string bytes() const {
    ByteWriter<std::string> writer;
    writer.text(call).text(name).number(color).number(key);
    return writer.bytes();
  }
  static std::optional<SplitPart> parse(std::string_view bytes) {
    ByteReader reader(bytes);
    SplitPart part;
    part.call = reader.text();
    part.name = reader.text();
    part.color = reader.number<std::int32_t>();
    part.key = reader.number<std::int32_t>();
    return reader.finished() ? std::optional(part) : std::nullopt;
  }
  // The call with its name, for errors.
  std::string text() const {
    const std::string quoted =
        name.empty() ? "" : fmt::format(" named '{}'", escape_control_characters(name));
    return escape_control_characters(call) + quoted;
  }
};

[[noreturn]] void throw_difference(int first, const SplitPart& one, int other,
                                   const SplitPart& two) {
  throw CollectiveMismatch(
      fmt::format("split: expected the same call on every rank, but rank {} called {} and rank {} "
                  "called {}",
                  first, one.text(), other, two.text()),
      {first, other}, {one.text(), two.text()});
}

// Throws, on every rank alike, if ranks made different calls, or ranks of a color gave different
// names.
void compare(const std::vector<SplitPart>& parts) {
  const auto size = static_cast<int>(parts.size());
  const auto part = [&](int rank) -> const SplitPart& {
    return parts[static_cast<std::size_t>(rank)];
  };
  std::map<int, int> first_of;  // rank of each color
  for (int rank = 0; rank < size; ++rank) {
    if (part(rank).call != part(0).call) throw_difference(0, part(0), rank, part(rank));
    if (part(rank).color < 0) continue;
    const int first = first_of.emplace(part(rank).color, rank).first->second;
    if (part(first).name != part(rank).name) {
      throw_difference(first, part(first), rank, part(rank));
    }
  }
}

}  // namespace

Communicator Communicator::split(int color, int key, std::string_view name) const {
  (void)impl("split");
  return split_by("split(color, key)", color, key, name);
}

Communicator Communicator::split(std::span<const int> ranks, std::string_view name) const {
  const Membership& me = impl("split").members.self;
  if (ranks.empty()) throw InvalidArgument("split: expected at least one rank, but got none");
  std::set<int> seen;
  for (const int rank : ranks) {
    require_rank(rank, me.size, "split");
    if (seen.insert(rank).second) continue;
    throw InvalidArgument(
        fmt::format("split: expected each rank once, but rank {} occurs again", rank));
  }
  const auto own = std::ranges::find(ranks, me.rank);
  const bool is_listed = own != ranks.end();
  return split_by(fmt::format("split({{{}}})", fmt::join(ranks, ", ")), is_listed ? 0 : -1,
                  static_cast<int>(own - ranks.begin()), name);
}

// `call` is the call as text, equal on all ranks.
Communicator Communicator::split_by(std::string_view call, int color, int key,
                                    std::string_view name) const {
  Impl& mine = *impl_;
  require_group_name(name, "split");
  const std::lock_guard lock(mine.mutex);
  mine.rendezvous(HostCall::split);
  const int number = ++mine.members.splits;
  const SplitPart own{
      .call = std::string(call), .color = color, .key = key, .name = std::string(name)};
  std::vector<SplitPart> parts;
  for (const std::string& bytes : mine.members.bootstrap->all_gather(own.bytes())) {
    const std::optional<SplitPart> part = SplitPart::parse(bytes);
    if (!part) {
      throw InvalidArgument(fmt::format(
          "split: expected a split on every rank, but rank {} does something else", parts.size()));
    }
    parts.push_back(*part);
  }
  compare(parts);
  if (color < 0) return {};
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (parts[static_cast<std::size_t>(rank)].color == color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return parts[static_cast<std::size_t>(rank)].key; });
  const std::string path = fmt::format("{}.{}.{}", mine.members.name, number, color);
  GroupSeed seed = mine.members.subgroup(ranks, path, mine.members.bootstrap->subset(ranks, path),
                                         "split, making " + (name.empty() ? path : own.name));
  seed.label = own.name;
  return Communicator(Impl::until_left(std::make_shared<Impl>(std::move(seed))));
}

}  // namespace gantry
