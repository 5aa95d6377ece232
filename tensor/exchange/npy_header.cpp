#include "tensor/exchange/npy_header.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "core/text/escaped_text.hpp"
#include "tensor/exchange/python_literal.hpp"

namespace gantry::detail {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxHeaderBytes = 64 << 10;
constexpr std::size_t kShownDescr = 40;
constexpr std::size_t kAlignment = 64;  // of the elements in the file
// NumPy leaves room to write a larger size in place: the digits of 2^64 and a sign.
constexpr std::size_t kSpareDigits = 21;

// The spellings of a type that NumPy reads. A code may follow a byte order, a name may not. bf16
// and 8-bit floats have none.
struct Name {
  DType dtype;
  std::string_view code;
  std::string_view character;
};
constexpr std::array<Name, kDTypeCount> kNames{{
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, torch, numpy, character, ...) \
  {DType::dtype, numpy, character},
#include <gantry/core/dtypes.def>
}};

// "uint16" for the code "u2".
std::string long_name(const Name& name) {
  const char kind = name.code[0];
  if (kind == 'b') return "bool";
  return fmt::format("{}{}",
                     kind == 'u'   ? "uint"
                     : kind == 'i' ? "int"
                                   : "float",
                     8 * element_size(name.dtype));
}

// Byte orders: little, big, this machine's, and none.
constexpr std::string_view kByteOrders = "<>=|";

// Sets dtype and byte order. False for a type that gantry does not have.
bool set_type(std::string_view descr, NpyHeader& header) {
  const bool gives_order = !descr.empty() && kByteOrders.find(descr[0]) != descr.npos;
  const char order = gives_order ? descr[0] : '=';
  const std::string_view type = descr.substr(gives_order ? 1 : 0);
  for (const Name& name : kNames) {
    if (name.code.empty()) continue;
    const bool is_code = type == name.code || type == name.character;
    if (!is_code && (gives_order || type != long_name(name))) continue;
    const bool has_order = element_size(name.dtype) > 1;
    if (has_order && order == '|') return false;
    const bool is_big = order == '>' || (order == '=' && std::endian::native == std::endian::big);
    header.dtype = name.dtype;
    header.big_endian = has_order && is_big;
    return true;
  }
  return false;
}

void read_type(const ByteSource& source, const NpyDict& dict, NpyHeader& header) {
  if (!dict.is_structured && set_type(dict.descr, header)) return;
  std::string codes;
  for (const Name& name : kNames) {
    if (!name.code.empty()) codes += fmt::format("{}{}", codes.empty() ? "" : ", ", name.code);
  }
  source.fail<DTypeError>(fmt::format(
      "expected a type that gantry has ({}), but got {}", codes,
      dict.is_structured
          ? "a structured one"
          : fmt::format("'{}'", escape_control_characters(
                                    std::string_view(dict.descr).substr(0, kShownDescr)))));
}

// The bytes of the elements, or nothing if they are more than any file has.
std::optional<std::uint64_t> element_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
  std::uint64_t bytes = element_size(dtype);
  bool is_empty = false;
  for (const std::int64_t size : shape) is_empty = is_empty || size == 0;
  if (is_empty) return 0;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) ||
        bytes > static_cast<std::uint64_t>(INT64_MAX)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// The text of the dict; sets the number of bytes up to its end.
std::string read_text(const ByteSource& source, NpyHeader& header) {
  constexpr std::size_t kPrefix = 8;
  if (source.size() < kPrefix || source.text(0, kMagic.size()) != kMagic) {
    source.fail("expected a NumPy file, but it does not start as one");
  }
  const std::string version = source.text(kMagic.size(), 2);
  const int major = static_cast<unsigned char>(version[0]);
  const int minor = static_cast<unsigned char>(version[1]);
  if (major < 1 || major > 3 || minor != 0) {
    source.fail(fmt::format("expected version 1.0, 2.0 or 3.0, but got {}.{}", major, minor));
  }
  const std::size_t width = major == 1 ? 2 : 4;
  if (source.size() < kPrefix + width) source.fail("the file ends before its header");
  const std::string digits = source.text(kPrefix, width);
  ByteReader reader(digits);
  const std::uint64_t length =
      major == 1 ? reader.number<std::uint16_t>() : reader.number<std::uint32_t>();
  header.bytes = kPrefix + width + length;
  if (length > kMaxHeaderBytes) {
    source.fail(
        fmt::format("expected a header of at most {} bytes, but got {}", kMaxHeaderBytes, length));
  }
  if (header.bytes > source.size()) {
    source.fail(fmt::format("expected a header of {} bytes, but the file ends after {}", length,
                            source.size() - kPrefix - width));
  }
  return source.text(kPrefix + width, static_cast<std::size_t>(length));
}

NpyDict parse(const ByteSource& source, const std::string& text) {
  try {
    return parse_npy_dict(text);
  } catch (const MalformedHeader& problem) {
    source.fail(problem.what());
  }
}

}  // namespace

bool has_npy_type(DType dtype) { return !kNames[static_cast<std::size_t>(dtype)].code.empty(); }

NpyHeader read_npy_header(const ByteSource& source) {
  NpyHeader header;
  const NpyDict dict = parse(source, read_text(source, header));
  read_type(source, dict, header);
  if (dict.shape.size() > static_cast<std::size_t>(kMaxDims)) {
    source.fail<ShapeError>(
        fmt::format("expected at most {} dims, but got {}", kMaxDims, dict.shape.size()));
  }
  header.fortran_order = dict.fortran_order;
  header.sizes = dict.shape;
  const auto expected = element_bytes(dict.shape, header.dtype);
  const std::uint64_t present = source.size() - header.bytes;
  if (!expected || *expected != present) {
    source.fail(fmt::format("expected {} bytes of elements for shape {} of {}, but the file has {}",
                            expected ? std::to_string(*expected) : "more than 2^63",
                            header.sizes.str(), name(header.dtype), present));
  }
  return header;
}

std::string npy_header(DType dtype, bool fortran_order, const Shape& sizes) {
  const std::string_view type = kNames[static_cast<std::size_t>(dtype)].code;
  std::string shape = "(";
  for (int d = 0; d < sizes.size(); ++d) {
    shape += fmt::format("{}{}", d == 0 ? "" : ", ", sizes[d]);
  }
  shape += sizes.size() == 1 ? ",)" : ")";
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': {}, 'shape': {}, }}",
                                 element_size(dtype) == 1 ? '|' : '<', type,
                                 fortran_order ? "True" : "False", shape);
  if (!sizes.empty()) {
    const std::int64_t growing = fortran_order ? sizes.back() : sizes.front();
    dict.append(kSpareDigits - std::to_string(growing).size(), ' ');
  }
  const std::size_t prefix = kMagic.size() + 4;
  const std::size_t total = (prefix + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dict.append(total - prefix - dict.size() - 1, ' ');
  dict += '\n';
  ByteWriter<std::string> writer;
  writer.fixed_text(kMagic, kMagic.size()).number(std::uint8_t{1}).number(std::uint8_t{0});
  writer.number(static_cast<std::uint16_t>(dict.size()));
  return writer.bytes() + dict;
}

}  // namespace gantry::detail
