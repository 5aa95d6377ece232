#pragma once

#include "collectives/hierarchical/transport.hpp"

namespace gantry {

// One operation of a hierarchical transport, piece by piece, in its rank's place of the grid.
//
// A piece is an array of N parts. "By columns" they stand as [L][K], the parts of column l side by
// side; "by nodes" as [K][L].
struct HierarchicalTransport::Run {
  HierarchicalTransport& owner;
  const CollectiveCall& call;
  const Stream& stream;

  const NodeMap& map = owner.map_;
  const Descriptor& what = call.what;
  const std::byte* in = static_cast<const std::byte*>(call.in);
  std::byte* out = static_cast<std::byte*>(call.out);
  const std::int64_t width = static_cast<std::int64_t>(element_size(what.dtype));
  const std::int64_t nodes = map.nodes();  // K
  const std::int64_t ranks = map.width();  // L, of a node
  const int node = map.node_of(owner.everyone_.rank);
  const int index = map.index_of(owner.everyone_.rank);
  const bool is_root = what.root == owner.everyone_.rank;

  void all_reduce();
  void reduce();
  void broadcast();
  void all_gather();
  void reduce_scatter();
  void gather();
  void scatter();
  void all_to_all();

 private:
  // Elements of a part, so that a piece of `parts` of them fits into scratch memory.
  std::int64_t part_elements(std::int64_t parts, std::int64_t total) const;
  Tensor scratch(std::int64_t elements) const;
  void copy(std::byte* to, const std::byte* from, std::int64_t elements) const;
  std::byte* at(const Tensor& tensor, std::int64_t element) const;
  // [rows][columns] parts of `count` elements to [columns][rows].
  Tensor transposed(const Tensor& parts, std::int64_t rows, std::int64_t columns,
                    std::int64_t count) const;
  // A part of every rank, `stride` elements apart in rank order, by columns.
  Tensor by_columns(const std::byte* from, std::int64_t stride, std::int64_t count) const;

  // One step inside the node, or within the column. `root` is an index, or a node.
  void in_node(CollectiveKind kind, std::int64_t count, const void* from, void* to, int root = -1,
               bool scales = false) const;
  void in_column(CollectiveKind kind, std::int64_t count, const void* from, void* to,
                 int root = -1) const;
  void step(Transport& transport, CollectiveKind kind, std::int64_t count, const void* from,
            void* to, int root, double scale) const;

  // This rank's part of the fold of all ranks' pieces, which stand by columns.
  Tensor fold_piece(const std::byte* piece, std::int64_t count) const;
  Tensor fold_in_free_order(const std::byte* piece, std::int64_t count) const;
  Tensor fold_in_rank_order(const std::byte* piece, std::int64_t count) const;
  // An array of what.count elements in pieces: fold(piece) gives this rank's part of it, and
  // collect(part, count, to) brings all parts together; `wants` says whether this rank gets them.
  template <class Collect>
  void reduce_pieces(bool wants, Collect collect);
};

}  // namespace gantry
