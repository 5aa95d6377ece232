#include "collectives/hierarchical/traffic.hpp"

#include <algorithm>
#include <vector>

#include "collectives/hierarchical/run.hpp"
#include "collectives/host/chunk_sizes.hpp"
#include "collectives/host/traffic.hpp"

namespace gantry {

namespace {

// Counts one operation, by the parts that HierarchicalTransport::Run makes of it.
class LevelCount {
 public:
  LevelCount(const Descriptor& what, const NodeMap& map, const NodeCounter& count_in_node,
             const TransferVisitor& visit)
      : what_(what), map_(map), count_in_node_(count_in_node), visit_(visit) {}

  Steps count() {
    steps_ = count_verification(map_.ranks(), visit_);
    count_parts();
    return steps_;
  }

 private:
  static constexpr int kAll = -1;  // nodes, or columns

  void count_parts() {
    switch (what_.kind) {
      case CollectiveKind::all_reduce:
        return for_each_reduced_chunk([&](std::int64_t count) {
          in_columns(CollectiveKind::all_gather, count);
          in_nodes(CollectiveKind::all_gather, nodes_ * count);
        });
      case CollectiveKind::reduce:
        return for_each_reduced_chunk([&](std::int64_t count) {
          in_columns(CollectiveKind::gather, count, root_node_);
          in_nodes(CollectiveKind::gather, nodes_ * count, root_index_, root_node_);
        });
      case CollectiveKind::broadcast:
        return broadcast();
      case CollectiveKind::all_gather:
        return for_each_chunk([&](std::int64_t count) {
          in_columns(CollectiveKind::all_gather, count);
          in_nodes(CollectiveKind::all_gather, nodes_ * count);
        });
      case CollectiveKind::reduce_scatter:
        return for_each_chunk([&](std::int64_t count) { reduce_chunk(count); });
      case CollectiveKind::gather:
        return for_each_chunk([&](std::int64_t count) {
          in_nodes(CollectiveKind::gather, count, root_index_);
          in_columns(CollectiveKind::gather, ranks_ * count, root_node_, root_index_);
        });
      case CollectiveKind::scatter:
        return for_each_chunk([&](std::int64_t count) {
          in_columns(CollectiveKind::scatter, ranks_ * count, root_node_, root_index_);
          in_nodes(CollectiveKind::scatter, count, root_index_);
        });
      case CollectiveKind::all_to_all:
        return for_each_chunk([&](std::int64_t count) {
          in_columns(CollectiveKind::all_to_all, ranks_ * count);
          in_nodes(CollectiveKind::all_to_all, nodes_ * count);
        });
      case CollectiveKind::barrier:
      case CollectiveKind::send:
      case CollectiveKind::recv:
        return;
    }
  }

  void broadcast() {
    const std::int64_t count = part_elements(width_, ranks_, what_.count);
    const auto chunk = [&](std::int64_t times, std::int64_t elements) {
      times_ = times;
      if (times == 0 || elements == 0) return;
      const std::int64_t each = padded_elements(divided_up(elements, ranks_));
      in_nodes(CollectiveKind::scatter, each, root_index_, root_node_);
      in_columns(CollectiveKind::broadcast, each, root_node_);
      in_nodes(CollectiveKind::all_gather, each);
    };
    chunk(what_.count / (ranks_ * count), ranks_ * count);
    chunk(1, what_.count % (ranks_ * count));
  }

  template <class Collect>
  void for_each_reduced_chunk(Collect collect) {
    const std::int64_t parts = nodes_ * ranks_;
    const std::int64_t count = part_elements(width_, parts, what_.count);
    const std::int64_t last = padded_elements(divided_up(what_.count % (parts * count), parts));
    repeat(what_.count / (parts * count), count, last, [&](std::int64_t elements) {
      reduce_chunk(elements);
      collect(elements);
    });
  }
  template <class Visit>
  void for_each_chunk(Visit visit) {
    const std::int64_t parts = nodes_ * ranks_;
    const std::int64_t count = part_elements(width_, parts, what_.count * parts);
    repeat(what_.count / count, count, what_.count % count, visit);
  }
  // Visits chunks of `count` elements, all at once, and the last one of `rest` elements.
  template <class Visit>
  void repeat(std::int64_t times, std::int64_t count, std::int64_t rest, Visit visit) {
    times_ = times;
    if (times > 0) visit(count);
    times_ = 1;
    if (rest > 0) visit(rest);
  }

  void reduce_chunk(std::int64_t count) {
    if (is_free_order(what_)) {
      in_nodes(CollectiveKind::reduce_scatter, nodes_ * count);
      in_columns(CollectiveKind::reduce_scatter, count);
    } else {
      in_nodes(CollectiveKind::all_to_all, nodes_ * count);
      in_columns(CollectiveKind::all_to_all, ranks_ * count);
    }
  }

  Descriptor part_of(CollectiveKind kind, std::int64_t count, int root) const {
    Descriptor part = what_;
    part.kind = kind;
    part.count = count;
    part.root = root;
    part.window_offset = 0;
    return part;
  }
  // Counts a part in one node or in all of them.
  void in_nodes(CollectiveKind kind, std::int64_t count, int root = -1, int node = kAll) {
    const int ranks = map_.width();
    const ResolvedCall part({.what = part_of(kind, count, root)}, ranks);
    steps_ += times_ * count_in_node_(part, ranks, collector());
    for (int k = 0; k < map_.nodes(); ++k) {
      if (node != kAll && node != k) continue;
      replay([&](int index) { return map_.rank_at(k, index); });
    }
  }
  void in_columns(CollectiveKind kind, std::int64_t count, int root = -1, int column = kAll) {
    steps_ += times_ * count_over_hosts(part_of(kind, count, root), map_.nodes(), collector());
    for (int l = 0; l < map_.width(); ++l) {
      if (column != kAll && column != l) continue;
      replay([&](int node) { return map_.rank_at(node, l); });
    }
  }
  TransferVisitor collector() {
    moved_.clear();
    return [this](const Transfer& transfer) { moved_.push_back(transfer); };
  }
  template <class RankOf>
  void replay(RankOf rank_of) const {
    for (const Transfer& moved : moved_) {
      visit_({rank_of(moved.from), rank_of(moved.to), times_ * moved.bytes, times_ * moved.messages,
              moved.way});
    }
  }

  const Descriptor& what_;
  const NodeMap& map_;
  const NodeCounter& count_in_node_;
  const TransferVisitor& visit_;
  const std::int64_t width_ = static_cast<std::int64_t>(element_size(what_.dtype));
  const std::int64_t nodes_ = map_.nodes();
  const std::int64_t ranks_ = map_.width();  // of a node
  const int root_node_ = what_.root < 0 ? -1 : map_.node_of(what_.root);
  const int root_index_ = what_.root < 0 ? -1 : map_.index_of(what_.root);
  std::int64_t times_ = 1;  // chunks that are counted at once
  std::vector<Transfer> moved_;
  Steps steps_;
};

}  // namespace

Steps count_by_levels(const Descriptor& what, const NodeMap& map, const NodeCounter& count_in_node,
                      const TransferVisitor& visit) {
  const bool is_flat =
      what.kind == CollectiveKind::barrier || what.bytes() <= small_limit(map.ranks());
  if (is_flat) return count_over_hosts(what, map.ranks(), visit);
  return LevelCount(what, map, count_in_node, visit).count();
}

}  // namespace gantry
