#include "kernels/host/elementwise/half_tables.hpp"

#include <utility>

#include "kernels/host/elementwise/unary_loop.hpp"

namespace gantry::kernels::host {
namespace {

constexpr std::int64_t kValues = 65536;

void fill(std::uint16_t* words, UnaryOp op, DType dtype) {
  for (std::int64_t i = 0; i < kValues; ++i) words[i] = static_cast<std::uint16_t>(i);
  TensorRef all;
  all.data = words;
  all.dtype = dtype;
  all.ndim = 1;
  all.sizes[0] = kValues;
  all.strides[0] = 1;
  unary_loop(op, all, all);
}

bool costs_more_than_a_look_up(UnaryOp op) {
  switch (op) {
    case UnaryOp::expm1:
    case UnaryOp::log2:
    case UnaryOp::log10:
    case UnaryOp::log1p:
    case UnaryOp::sin:
    case UnaryOp::cos:
    case UnaryOp::tan:
    case UnaryOp::asin:
    case UnaryOp::acos:
    case UnaryOp::atan:
    case UnaryOp::sinh:
    case UnaryOp::cosh:
    case UnaryOp::tanh:
    case UnaryOp::exp:
    case UnaryOp::log:
    case UnaryOp::sigmoid:
    case UnaryOp::gelu:
    case UnaryOp::silu:
    case UnaryOp::erf:
      return true;
    default:
      return false;
  }
}

}  // namespace

const std::uint16_t* HalfTables::find(UnaryOp op, DType dtype, std::int64_t numel) {
  if (dtype != DType::f16 && dtype != DType::bf16) return nullptr;
  if (!costs_more_than_a_look_up(op)) return nullptr;
  Table& table = (dtype == DType::f16 ? of_f16_ : of_bf16_)[static_cast<std::size_t>(op)];
  if (const std::uint16_t* made = table.made.load(std::memory_order_acquire)) return made;
  if (table.computed.fetch_add(numel, std::memory_order_relaxed) + numel < kValues) return nullptr;
  const std::lock_guard lock(table.mutex);
  if (table.words == nullptr) {
    auto words = std::make_unique<std::uint16_t[]>(kValues);
    fill(words.get(), op, dtype);
    table.words = std::move(words);
    table.made.store(table.words.get(), std::memory_order_release);
  }
  return table.words.get();
}

HalfTables& half_tables() {
  static HalfTables& tables = *new HalfTables;
  return tables;
}

}  // namespace gantry::kernels::host
