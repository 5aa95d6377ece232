// The operations that are measured, with the habits of nccl-tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "collectives/selection/descriptor.hpp"

namespace gantry::bench {

/// Everything that can be measured, in the order of "all". send stands for pairs of ranks, of which
/// the even one sends and the odd one receives.
[[nodiscard]] const std::vector<CollectiveKind>& operations();
/// name(kind), or "send_recv" for send.
[[nodiscard]] std::string_view operation_name(CollectiveKind kind);
/// The operation called `text`, with or without underscores, or as a program of nccl-tests is
/// called: "all_reduce", "allreduce", "all_reduce_perf". Throws: InvalidArgument that lists them.
[[nodiscard]] CollectiveKind parse_operation(std::string_view text);
/// The dtype called `text`, by its name or as nccl-tests calls it: "f32", "float". Throws:
/// DTypeError that lists the names.
[[nodiscard]] DType parse_element_type(std::string_view text);
/// Throws: InvalidArgument that lists the ops.
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view text);

/// True if the size of a message counts the parts of all ranks together.
[[nodiscard]] bool is_sized_by_all_ranks(CollectiveKind kind);
/// True if there are algorithms for registered memory.
[[nodiscard]] bool has_registered_form(CollectiveKind kind);
/// True if the operation overwrites its input.
[[nodiscard]] bool is_in_place(CollectiveKind kind);
[[nodiscard]] bool has_root(CollectiveKind kind);
/// busbw / algbw of `ranks` ranks: what a link carries of each byte.
[[nodiscard]] double bus_factor(CollectiveKind kind, int ranks);

/// One size of one operation.
struct Case {
  CollectiveKind kind = CollectiveKind::all_reduce;
  DType dtype = f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::int64_t count = 0;   ///< elements as the operation counts them: of one rank's part
  std::int64_t bytes = 0;   ///< size of the message
  int graph_calls = 0;      ///< calls in one graph; 0: eager
  bool registered = false;  ///< what others read or write is, if that makes a difference
};

/// The case of about `bytes`: parts are at least one element, and whole ones.
[[nodiscard]] Case make_case(CollectiveKind kind, DType dtype, ReduceOp op, int root,
                             std::int64_t bytes, int ranks);
/// The library's description of it.
[[nodiscard]] Descriptor describe(const Case& what);

/// Sizes from `begin` to `end`, each `factor` times the one before, or `step` more if that is not
/// 0.
[[nodiscard]] std::vector<std::int64_t> sizes_between(std::int64_t begin, std::int64_t end,
                                                      double factor, std::int64_t step);

}  // namespace gantry::bench
