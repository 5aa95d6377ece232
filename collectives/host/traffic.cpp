#include "collectives/host/traffic.hpp"

#include <cstdint>

#include "collectives/host/chunk_sizes.hpp"
#include "collectives/host/entry.hpp"
#include "collectives/partition.hpp"
#include "collectives/slices.hpp"

namespace gantry {

namespace {

constexpr auto kFrameBytes = static_cast<std::int64_t>(sizeof(HostFrame));

template <class Visit>
void for_each_pair(int ranks, Visit visit) {
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from != to) visit(from, to);
    }
  }
}

Steps count_small(const Descriptor& what, int ranks, const TransferVisitor& visit) {
  for_each_pair(ranks, [&](int from, int to) {
    const std::int64_t body = even_slices(what, from, to).send.bytes;
    visit({from, to, kFrameBytes + body, 1, Way::hosts});
  });
  return {.hosts = 1};
}

Steps count_direct(const Descriptor& what, int ranks, const TransferVisitor& visit) {
  Steps steps = count_verification(ranks, visit);
  const std::int64_t chunk = direct_chunk_bytes(ranks);
  for_each_pair(ranks, [&](int from, int to) {
    const std::int64_t bytes = even_slices(what, from, to).send.bytes;
    if (bytes > 0) visit({from, to, bytes, divided_up(bytes, chunk), Way::hosts});
  });
  steps.hosts += divided_up(what.bytes(), chunk);
  return steps;
}

// Counts `times` chunks of `count` elements of a two-shot.
Steps count_two_shots(const Descriptor& what, int ranks, std::int64_t times, std::int64_t count,
                      const TransferVisitor& visit) {
  if (times == 0 || count == 0) return {};
  const auto width = static_cast<std::int64_t>(element_size(what.dtype));
  const Roles roles = two_shot_roles(what.kind);
  for_each_pair(ranks, [&](int from, int to) {
    const std::int64_t sent = partition(count, ranks, to).count * width;
    if (sent > 0 && includes(roles.senders, what.root, from)) {
      visit({from, to, times * sent, times, Way::hosts});
    }
    const std::int64_t result = partition(count, ranks, from).count * width;
    if (result > 0 && includes(roles.receivers, what.root, to)) {
      visit({from, to, times * result, times, Way::hosts});
    }
  });
  return {.hosts = 2 * times};
}

Steps count_two_shot(const Descriptor& what, int ranks, const TransferVisitor& visit) {
  Steps steps = count_verification(ranks, visit);
  const auto width = static_cast<std::int64_t>(element_size(what.dtype));
  const std::int64_t each = two_shot_chunk_elements(ranks, width);
  steps += count_two_shots(what, ranks, what.count / each, each, visit);
  steps += count_two_shots(what, ranks, 1, what.count % each, visit);
  return steps;
}

}  // namespace

Steps count_verification(int ranks, const TransferVisitor& visit) {
  for_each_pair(ranks, [&](int from, int to) { visit({from, to, kFrameBytes, 1, Way::hosts}); });
  return {.hosts = 1};
}

// A large message is announced, accepted, and sent in chunks that have a frame each.
Steps count_message_over_hosts(const Descriptor& what, int from, int to, int ranks,
                               const TransferVisitor& visit) {
  const std::int64_t bytes = what.bytes();
  if (bytes <= small_limit(ranks)) {
    visit({from, to, kFrameBytes + bytes, 1, Way::hosts});
    return {.hosts = 1};
  }
  const std::int64_t chunks = divided_up(bytes, kChunkBytes);
  visit({from, to, kFrameBytes * (1 + chunks) + bytes, 1 + chunks, Way::hosts});
  visit({to, from, kFrameBytes, 1, Way::hosts});
  return {.hosts = 2 + chunks};
}

Steps count_over_hosts(const Descriptor& what, int ranks, const TransferVisitor& visit) {
  const bool is_small = what.bytes() <= small_limit(ranks);
  switch (what.kind) {
    case CollectiveKind::barrier:
      return count_verification(ranks, visit);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return {};
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
      if (!is_small) return count_two_shot(what, ranks, visit);
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
      break;
  }
  return is_small ? count_small(what, ranks, visit) : count_direct(what, ranks, visit);
}

}  // namespace gantry
