#include "tests/differential/statement.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>

#include <gantry/tensor/factories.hpp>

namespace gantry::testing {

namespace {

// SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

DType dtype_named(std::string_view text) {
  for (const DType dtype : {DType::bool_, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64,
                            DType::f16, DType::bf16, DType::f32, DType::f64}) {
    if (name(dtype) == text) return dtype;
  }
  throw std::runtime_error("no dtype: " + std::string(text));
}

double element(DType dtype, std::uint64_t seed, std::uint64_t k) {
  const std::uint64_t x = mixed(seed * 1000003 + k);
  if (dtype == DType::bool_) return static_cast<double>(x & 1);
  if (is_floating_point(dtype)) {
    constexpr std::array kSpecial{std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(), -0.0};
    if (seed % 3 == 0 && x % 7 == 0) return kSpecial[x >> 32 & 3];
    return (static_cast<double>(x % 33) - 16) / 4;
  }
  return static_cast<double>(x % 11) - (dtype == DType::u8 ? 0 : 5);
}

class Fnv {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3;
  }
  template <class T>
  void add_values(std::span<const T> values) {
    add(std::as_bytes(values));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

// Elements of type T, with one NaN for all.
template <class T>
void add_elements(Fnv& hash, const Tensor& tensor) {
  std::vector<T> values = tensor.to_vector<T>();
  if constexpr (std::is_floating_point_v<T>) {
    for (T& value : values) {
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    }
  }
  hash.add_values(std::span<const T>(values));
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

Statement parse_statement(std::string_view line) {
  const std::vector<std::string> words = split(line, ' ');
  if (words.size() < 4 || words[0].size() != 16) {
    throw std::runtime_error("no statement: " + std::string(line));
  }
  return {.answer = std::stoull(words[0], nullptr, 16),
          .operation = words[1],
          .parameters = words[2],
          .inputs = {words.begin() + 3, words.end()}};
}

Tensor input_tensor(std::string_view text, Device device) {
  const std::vector<std::string> parts = split(text, ':');
  // indexN: positions of a dim of size N, from its end for odd seeds.
  const bool is_index = parts[0].starts_with("index");
  const DType dtype = is_index ? DType::i64 : dtype_named(parts[0]);
  std::vector<std::int64_t> sizes;
  if (!parts[1].empty()) {
    for (const std::string& size : split(parts[1], 'x')) sizes.push_back(std::stoll(size));
  }
  const char layout = sizes.empty() ? 'c' : parts[2][0];
  const std::uint64_t seed = std::stoull(parts[3]);
  std::vector<std::int64_t> stored = sizes;
  if (layout == 't') stored.assign(sizes.rbegin(), sizes.rend());
  if (layout == 's') stored.back() *= 2;
  const Shape shape(stored);
  std::vector<double> values(static_cast<std::size_t>(shape.product()));
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] = element(dtype, seed, k);
    if (!is_index) continue;
    const std::int64_t size = std::stoll(parts[0].substr(5));
    const std::int64_t position = ((static_cast<std::int64_t>(values[k]) % size) + size) % size;
    values[k] = static_cast<double>(position - (seed % 2 == 1 ? size : 0));
  }
  const Tensor flat = tensor(values).to(dtype).view(shape).to(device);
  if (layout == 't') {
    Dims order;
    for (int d = shape.size() - 1; d >= 0; --d) order.push_back(d);
    return flat.permute(order);
  }
  return layout == 's' ? flat.slice(-1, 0, {}, 2) : flat;
}

std::uint64_t hash_of(const std::vector<Tensor>& results) {
  Fnv hash;
  for (const Tensor& result : results) {
    const std::string_view dtype = name(result.dtype());
    hash.add(std::as_bytes(std::span(dtype.data(), dtype.size())));
    std::vector<std::int64_t> head{result.dim()};
    head.insert(head.end(), result.sizes().begin(), result.sizes().end());
    hash.add_values(std::span<const std::int64_t>(head));
    switch (result.dtype()) {
      case DType::bool_:
      case DType::u8:
        add_elements<std::uint8_t>(hash, result);
        break;
      case DType::i8:
        add_elements<std::int8_t>(hash, result);
        break;
      case DType::i16:
        add_elements<std::int16_t>(hash, result);
        break;
      case DType::i32:
        add_elements<std::int32_t>(hash, result);
        break;
      case DType::i64:
        add_elements<std::int64_t>(hash, result);
        break;
      case DType::f16:
      case DType::bf16:
      case DType::f32:
        add_elements<float>(hash, result);
        break;
      case DType::f64:
        add_elements<double>(hash, result);
        break;
      case DType::u16:
      case DType::u32:
      case DType::u64:
      case DType::f8e4m3:
      case DType::f8e5m2:
        break;  // no statement has one
    }
  }
  return hash.value();
}

}  // namespace gantry::testing
