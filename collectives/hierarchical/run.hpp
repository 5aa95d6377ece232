#pragma once

#include "collectives/hierarchical/transport.hpp"

namespace gantry {

// The elements of one of `parts` parts of an array of `total` elements of `width` bytes, such that
// a chunk of all parts fits into scratch memory.
std::int64_t part_elements(std::int64_t width, std::int64_t parts, std::int64_t total);

// Rounds `elements` up to what parts are multiples of.
std::int64_t padded_elements(std::int64_t elements);

// One operation of a hierarchical transport, run in chunks.
//
// A chunk is an array of N parts. "By columns" its layout is [L][K], with the parts of column l
// adjacent; "by nodes" it is [K][L].
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
  Tensor scratch(std::int64_t elements) const;
  void copy(std::byte* to, const std::byte* from, std::int64_t elements) const;
  std::byte* at(const Tensor& tensor, std::int64_t element) const;
  // Transposes [rows][columns] parts of `count` elements to [columns][rows].
  Tensor transposed(const Tensor& parts, std::int64_t rows, std::int64_t columns,
                    std::int64_t count) const;
  // Copies a part of every rank, `stride` elements apart in rank order, to a chunk by columns.
  Tensor by_columns(const std::byte* from, std::int64_t stride, std::int64_t count) const;
  // Copies a chunk by columns to elements [begin, begin + count) of every rank's part of `out`.
  void to_ranks(const Tensor& chunk, std::int64_t begin, std::int64_t count) const;

  // Run one collective in the node or in the column. `root` is an index or a node.
  void in_node(CollectiveKind kind, std::int64_t count, const void* from, void* to, int root = -1,
               bool scales = false) const;
  void in_column(CollectiveKind kind, std::int64_t count, const void* from, void* to,
                 int root = -1) const;
  // `size`: the ranks of `transport`.
  void run_part(Transport& transport, std::int64_t size, CollectiveKind kind, std::int64_t count,
                const void* from, void* to, int root, double scale) const;

  // Reduces all ranks' chunks, laid out by columns. Returns this rank's part.
  Tensor reduce_chunk(const std::byte* chunk, std::int64_t count) const;
  Tensor reduce_in_any_order(const std::byte* chunk, std::int64_t count) const;
  Tensor reduce_in_order(const std::byte* chunk, std::int64_t count) const;
  // Reduces an array of what.count elements in chunks. collect(part, count, to) distributes this
  // rank's part of a chunk; `to` is null unless `receives`.
  template <class Collect>
  void reduce_chunks(bool receives, Collect collect);
  // Calls visit(begin, count) for the elements of a part of every rank, in chunks.
  template <class Visit>
  void for_each_chunk(Visit visit) const;
};

}  // namespace gantry
