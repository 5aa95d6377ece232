#include "tools/bench/operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/selection/selector.hpp"
#include "job/flight_file.hpp"

namespace gantry::bench {

const std::vector<CollectiveKind>& operations() {
  static const std::vector<CollectiveKind> kOperations{
      CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
      CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::gather,
      CollectiveKind::scatter,    CollectiveKind::all_to_all,     CollectiveKind::send,
      CollectiveKind::barrier};
  return kOperations;
}

std::string_view operation_name(CollectiveKind kind) {
  return kind == CollectiveKind::send ? "send_recv" : name(kind);
}

namespace {

std::string without_underscores(std::string_view text) {
  std::string result(text);
  std::erase(result, '_');
  return result;
}

}  // namespace

CollectiveKind parse_operation(std::string_view text) {
  constexpr std::string_view kProgram = "_perf";
  std::string_view stem = text;
  if (stem.ends_with(kProgram)) stem.remove_suffix(kProgram.size());
  const std::string wanted = without_underscores(stem);
  std::vector<std::string_view> names;
  for (const CollectiveKind kind : operations()) {
    if (wanted == without_underscores(operation_name(kind))) return kind;
    names.push_back(operation_name(kind));
  }
  throw InvalidArgument(
      fmt::format("--op: expected all or some of {}, but got '{}'", fmt::join(names, ", "), text));
}

DType parse_element_type(std::string_view text) {
  constexpr std::pair<std::string_view, DType> kOtherNames[]{
      {"int8", i8},    {"uint8", u8},      {"int32", i32},       {"uint32", u32},
      {"int64", i64},  {"uint64", u64},    {"half", f16},        {"float", f32},
      {"double", f64}, {"bfloat16", bf16}, {"fp8_e4m3", f8e4m3}, {"fp8_e5m2", f8e5m2}};
  for (const auto& [name, dtype] : kOtherNames) {
    if (text == name) return dtype;
  }
  return parse_dtype(text);
}

ReduceOp parse_reduce_op(std::string_view text) {
  std::vector<std::string_view> names;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                            ReduceOp::avg, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
    if (text == name(op)) return op;
    names.push_back(name(op));
  }
  throw InvalidArgument(
      fmt::format("--redop: expected one of {}, but got '{}'", fmt::join(names, ", "), text));
}

bool is_sized_by_all_ranks(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::gather || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::all_to_all;
}

bool has_registered_form(CollectiveKind kind) {
  return can_serve(Algorithm::zero_copy, kind) || can_serve(Algorithm::copy, kind);
}

bool is_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
         kind == CollectiveKind::broadcast;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast ||
         kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}

double bus_factor(CollectiveKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == CollectiveKind::all_reduce) return 2 * others;
  return is_sized_by_all_ranks(kind) ? others : 1;
}

Case make_case(CollectiveKind kind, DType dtype, ReduceOp op, int root, std::int64_t bytes,
               int ranks) {
  const auto element = static_cast<std::int64_t>(element_size(dtype));
  const std::int64_t parts = is_sized_by_all_ranks(kind) ? ranks : 1;
  Case made{.kind = kind, .dtype = dtype, .op = op, .root = has_root(kind) ? root : -1};
  if (kind == CollectiveKind::barrier) return made;
  made.count = std::max<std::int64_t>(1, bytes / element / parts);
  made.bytes = made.count * element * parts;
  return made;
}

Descriptor describe(const Case& what) {
  Descriptor call;
  call.count = what.count;
  call.root = what.root;
  call.kind = what.kind;
  if (reduces(what.kind)) call.op = what.op;
  if (what.kind != CollectiveKind::barrier) call.dtype = what.dtype;
  if (what.registered && has_registered_form(what.kind))
    call.window_offset = flight::pack_window_offset(1, 0);
  return call;
}

std::vector<std::int64_t> sizes_between(std::int64_t begin, std::int64_t end, double factor,
                                        std::int64_t step) {
  if (begin < 0 || end < begin) {
    throw InvalidArgument(
        fmt::format("--begin, --end: expected a range of sizes, but got {} to {}", begin, end));
  }
  if (step < 0) {
    throw InvalidArgument(
        fmt::format("--step: expected a number of bytes greater than 0, but got {}", step));
  }
  if (step == 0 && !(factor > 1 && std::isfinite(factor))) {
    throw InvalidArgument(
        fmt::format("--factor: expected a number greater than 1, but got {}", factor));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = begin; bytes <= end;) {
    sizes.push_back(bytes);
    const double product = static_cast<double>(bytes) * factor;
    if (step != 0 ? step > end - bytes : product >= 0x1p63) break;  // beyond what i64 holds, too
    const std::int64_t next =
        step != 0 ? bytes + step : static_cast<std::int64_t>(std::llround(product));
    bytes = std::max(next, bytes + 1);
  }
  return sizes;
}

}  // namespace gantry::bench
