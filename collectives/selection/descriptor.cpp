#include "collectives/selection/descriptor.hpp"

#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <gantry/core/dtype.hpp>

#include "collectives/protocol/layout.hpp"

namespace gantry {

static_assert(sizeof(Descriptor) == sizeof(flight::Call) &&
              offsetof(Descriptor, call) == offsetof(flight::Call, number) &&
              offsetof(Descriptor, count) == offsetof(flight::Call, count) &&
              offsetof(Descriptor, scale) == offsetof(flight::Call, scale) &&
              offsetof(Descriptor, window_offset) == offsetof(flight::Call, window_offset) &&
              offsetof(Descriptor, root) == offsetof(flight::Call, root) &&
              offsetof(Descriptor, kind) == offsetof(flight::Call, kind) &&
              offsetof(Descriptor, op) == offsetof(flight::Call, op) &&
              offsetof(Descriptor, dtype) == offsetof(flight::Call, dtype) &&
              offsetof(Descriptor, reproducible) == offsetof(flight::Call, reproducible) &&
              offsetof(Descriptor, algorithm) == offsetof(flight::Call, algorithm) &&
              offsetof(Descriptor, blocks) == offsetof(flight::Call, blocks) &&
              offsetof(Descriptor, operands) == offsetof(flight::Call, operands));

std::string_view name(CollectiveKind kind) {
  static constexpr std::string_view kNames[] = {
#define KIND(name, ...) #name,
#include "collectives/selection/kinds.def"
#undef KIND
  };
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name(Algorithm algorithm) {
  static constexpr std::string_view kNames[] = {
      "auto",
#define ALGORITHM(name, ...) #name,
#include "collectives/selection/algorithms.def"
#undef ALGORITHM
  };
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::uint8_t style_of(CollectiveKind kind) {
  using namespace flight;
  static constexpr std::uint8_t kStyles[] = {
#define KIND(name, senders, reducers, sent, received, style) style,
#include "collectives/selection/kinds.def"
#undef KIND
  };
  return kStyles[static_cast<std::size_t>(kind)];
}

flight::Call to_call(const Descriptor& descriptor) {
  flight::Call call;
  std::memcpy(&call, &descriptor, sizeof call);
  return call;
}

std::string Descriptor::str() const {
  return flight::call_text(gantry::name(kind), style_of(kind), gantry::name(op),
                           gantry::name(algorithm), to_call(*this));
}

std::uint32_t Descriptor::hash() const {
  std::uint64_t words[offsetof(Descriptor, operands) / 8];
  std::memcpy(words, this, sizeof words);
  std::uint64_t state = kHashSeed;
  for (std::size_t i = 1; i < std::size(words); ++i) {  // word 0 is the number
    state = mixed(state, words[i]);
  }
  // The operands' text is in their hash.
  state = mixed(state, operands.hash);
  state = mixed(state, operands.list_size);
  return protocol::digest_of(static_cast<std::uint32_t>(state ^ state >> 32));
}

namespace {

// Stands for a number of rows that may differ between ranks.
constexpr std::int64_t kUneven = -1;

// Appends to the text while it fits. Costs no allocation.
class ShapeText {
 public:
  explicit ShapeText(flight::Operands& operands) : at_(operands.shapes), begin_(operands.shapes) {}

  void add(std::string_view text) {
    if (!is_cut_ && text.size() <= room()) {
      std::memcpy(at_, text.data(), text.size());
      at_ += text.size();
    } else {
      is_cut_ = true;
    }
  }
  void add(std::int64_t number) {
    if (is_cut_) return;
    char digits[24];
    const auto [end, status] = std::to_chars(digits, digits + sizeof digits, number);
    add({digits, static_cast<std::size_t>(end - digits)});
  }
  // Begins a tensor of a list.
  void begin_tensor() {
    tensor_ = at_;
    if (at_ != begin_) add("+");
  }
  // Replaces what did not fit by the sign for it.
  void end_tensor() {
    if (!is_cut_ || has_ended_) return;
    has_ended_ = true;
    at_ = tensor_;
    for (const std::string_view text : {std::string_view(at_ == begin_ ? "" : "+"), kMore}) {
      std::memcpy(at_, text.data(), text.size());
      at_ += text.size();
    }
    std::memset(at_, 0, sizeof(flight::Operands::shapes) - static_cast<std::size_t>(at_ - begin_));
  }

 private:
  static constexpr std::string_view kMore = flight::kMoreOperands;
  // For "+…" and the null byte.
  static constexpr std::size_t kReserved = kMore.size() + 2;

  std::size_t room() const {
    return sizeof(flight::Operands::shapes) - kReserved - static_cast<std::size_t>(at_ - begin_);
  }

  char* at_;
  char* const begin_;
  char* tensor_ = at_;
  bool is_cut_ = false;
  bool has_ended_ = false;
};

std::int64_t rows_of(const Tensor& tensor) { return tensor.dim() > 0 ? tensor.size(0) : 0; }

// Adds a shape whose dim 0 is `rows`.
void add_shape(const Tensor& tensor, std::int64_t rows, std::uint64_t& hash, ShapeText& text) {
  hash = mixed(hash, static_cast<std::uint64_t>(tensor.dim()));
  text.add("[");
  for (int dim = 0; dim < tensor.dim(); ++dim) {
    const std::int64_t size = dim == 0 ? rows : tensor.size(dim);
    hash = mixed(hash, static_cast<std::uint64_t>(size));
    if (dim > 0) text.add(",");
    if (size == kUneven) {
      text.add("uneven");
    } else {
      text.add(size);
    }
  }
  text.add("]");
}

flight::Operands one_shape(const Tensor& tensor, std::int64_t rows) {
  flight::Operands operands{.hash = kHashSeed, .list_size = 0, .shapes = {}};
  ShapeText text(operands);
  add_shape(tensor, rows, operands.hash, text);
  text.end_tensor();
  return operands;
}

}  // namespace

flight::Operands operands_of(const Tensor& tensor) { return one_shape(tensor, rows_of(tensor)); }

flight::Operands list_operands(std::span<const Tensor> tensors) {
  flight::Operands operands{
      .hash = kHashSeed, .list_size = static_cast<std::uint32_t>(tensors.size()), .shapes = {}};
  ShapeText text(operands);
  for (const Tensor& tensor : tensors) {
    operands.hash = mixed(operands.hash, static_cast<std::uint64_t>(tensor.dtype()));
    text.begin_tensor();
    text.add(name(tensor.dtype()));
    add_shape(tensor, rows_of(tensor), operands.hash, text);
    text.end_tensor();
  }
  return operands;
}

flight::Operands block_operands(const Tensor& tensor, int ranks) {
  return one_shape(tensor, tensor.size(0) / ranks);
}

flight::Operands row_operands(const Tensor& tensor) { return one_shape(tensor, kUneven); }

flight::Operands block_operands(const Tensor& tensor, std::span<const std::int64_t> rows) {
  flight::Operands operands{.hash = mixed(kHashSeed, rows.size()), .list_size = 0, .shapes = {}};
  ShapeText text(operands);
  text.add("[");
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    operands.hash = mixed(operands.hash, static_cast<std::uint64_t>(rows[rank]));
    if (rank > 0) text.add("+");
    text.add(rows[rank]);
  }
  for (int dim = 1; dim < tensor.dim(); ++dim) {
    operands.hash = mixed(operands.hash, static_cast<std::uint64_t>(tensor.size(dim)));
    text.add(",");
    text.add(tensor.size(dim));
  }
  text.add("]");
  text.end_tensor();
  return operands;
}

}  // namespace gantry
