#include "tensor/exchange/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/bytes.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "tensor/exchange/safetensors_schema.hpp"

namespace gantry::detail {

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kShownCharacters = 200;

struct Type {
  std::string_view name;
  std::uint64_t bits;
};
// In the order in which the reference implementation writes tensors: by falling alignment.
constexpr std::array<Type, 22> kTypes{
    {{"U64", 64},        {"I64", 64},    {"F64", 64},    {"C64", 64},    {"F32", 32},
     {"U32", 32},        {"I32", 32},    {"BF16", 16},   {"F16", 16},    {"U16", 16},
     {"I16", 16},        {"F8_E8M0", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"I8", 8},      {"U8", 8},      {"F6_E3M2", 6}, {"F6_E2M3", 6},
     {"F4", 4},          {"BOOL", 8}}};

// The format's names of the dtypes, in the order of their numbers.
constexpr std::string_view kNames[] = {
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, torch, numpy, character, \
                     safetensors, dlpack, nccl)                                              \
  safetensors,
#include <gantry/core/dtypes.def>
};

std::string_view name_of(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (const auto dtype = static_cast<DType>(i); name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::string shown(std::string_view name) {
  return fmt::format("'{}'", escape_control_characters(name.substr(0, kShownCharacters)));
}

SafetensorsPlace place_of(const ByteSource& source, const std::string& name, StoredTensor& stored) {
  SafetensorsPlace place;
  const std::uint64_t bits = safetensors_bits(stored.dtype, place.entry.dtype);
  if (bits == 0) {
    source.fail(fmt::format("expected a type of the format for {}, but got {}", shown(name),
                            shown(stored.dtype)));
  }
  if (stored.begin > stored.end) {
    source.fail(fmt::format("expected data_offsets in order for {}, but got [{}, {}]", shown(name),
                            stored.begin, stored.end));
  }
  const auto bytes = safetensors_bytes(stored.sizes, bits);
  if (bytes != stored.end - stored.begin) {
    source.fail(fmt::format("expected {} bytes for {} by its type and shape, but got {}",
                            bytes ? std::to_string(*bytes) : "a number of whole", shown(name),
                            stored.end - stored.begin));
  }
  place.entry.dtype_name = std::move(stored.dtype);
  place.entry.sizes = std::move(stored.sizes);
  place.entry.bytes = *bytes;
  place.offset = stored.begin;
  return place;
}

// Sorts the names by place. Throws unless the tensors fill `bytes` without holes and overlaps.
void check_places(const ByteSource& source, SafetensorsHeader& header, std::uint64_t bytes) {
  const auto key = [&](const std::string& name) {
    const SafetensorsPlace& place = header.tensors.find(name)->second;
    return std::pair(place.offset, place.entry.bytes);
  };
  std::stable_sort(header.names.begin(), header.names.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::uint64_t end = 0;
  for (const std::string& name : header.names) {
    const auto [offset, size] = key(name);
    if (offset != end) {
      source.fail(fmt::format("expected {} at offset {}, behind the tensor before it, but got {}",
                              shown(name), end, offset));
    }
    end = offset + size;
  }
  if (end != bytes) {
    source.fail(fmt::format("expected {} bytes of tensors, but the file has {}", end, bytes));
  }
}

std::uint64_t header_length(const ByteSource& source) {
  if (source.size() < kLengthBytes) source.fail("the file ends before its header");
  const std::string digits = source.text(0, kLengthBytes);
  const auto length = ByteReader(digits).number<std::uint64_t>();
  if (length > kMaxSafetensorsHeader) {
    source.fail(fmt::format("expected a header of at most {} bytes, but got {}",
                            kMaxSafetensorsHeader, length));
  }
  if (length > source.size() - kLengthBytes) {
    source.fail(fmt::format("expected a header of {} bytes, but the file ends after {}", length,
                            source.size() - kLengthBytes));
  }
  return length;
}

StoredHeader parse(const ByteSource& source, const std::string& text) {
  if (text.empty() || text[0] != '{') source.fail("expected a header that starts with '{'");
  try {
    return parse_safetensors_schema(text);
  } catch (const InvalidArgument& problem) {
    source.fail(escape_control_characters(problem.what()));
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
  const std::uint64_t length = header_length(source);
  StoredHeader stored = parse(source, source.text(kLengthBytes, length));
  SafetensorsHeader header;
  header.metadata = std::move(stored.metadata);
  for (auto& [name, tensor] : stored.tensors) {
    header.names.push_back(name);
    header.tensors.emplace(name, place_of(source, name, tensor));
  }
  check_places(source, header, source.size() - kLengthBytes - length);
  for (auto& [name, place] : header.tensors) place.offset += kLengthBytes + length;
  return header;
}

std::uint64_t safetensors_bits(std::string_view name, std::optional<DType>& dtype) {
  for (const Type& type : kTypes) {
    if (type.name != name) continue;
    dtype = dtype_named(name);
    return type.bits;
  }
  return 0;
}

std::optional<std::uint64_t> safetensors_bytes(const std::vector<std::int64_t>& sizes,
                                               std::uint64_t bits) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::vector<SafetensorsItem> safetensors_items(const NamedTensors& tensors,
                                               std::span<const SafetensorsBytes> bytes) {
  std::vector<SafetensorsItem> items;
  for (const Type& type : kTypes) {
    const auto first = static_cast<std::ptrdiff_t>(items.size());
    for (const auto& [name, tensor] : tensors) {
      if (type.name == name_of(tensor.dtype())) {
        items.push_back({name, type.name, tensor.sizes().vec(), &tensor});
      }
    }
    for (const SafetensorsBytes& one : bytes) {
      if (type.name == one.dtype_name) {
        items.push_back({one.name, type.name, one.sizes, &one.bytes});
      }
    }
    std::sort(items.begin() + first, items.end(),
              [](const SafetensorsItem& a, const SafetensorsItem& b) { return a.name < b.name; });
  }
  return items;
}

std::string safetensors_header(std::span<const SafetensorsItem> items,
                               const SafetensorsMetadata& metadata) {
  Json root = Json::object();
  if (!metadata.empty()) {
    Json::Object texts(metadata.begin(), metadata.end());
    root.append(std::string(kMetadataName), Json(std::move(texts)));
  }
  std::uint64_t end = 0;
  for (const SafetensorsItem& item : items) {
    const std::uint64_t begin = std::exchange(end, end + item.tensor->nbytes());
    root.append(std::string(item.name),
                Json::object({{"dtype", item.dtype_name},
                              {"shape", item.sizes},
                              {"data_offsets", Json::array({begin, end})}}));
  }
  std::string text = root.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    throw Error(fmt::format("save_safetensors: expected a header of at most {} bytes, but got {}",
                            kMaxSafetensorsHeader, text.size()));
  }
  ByteWriter<std::string> writer;
  return writer.number(static_cast<std::uint64_t>(text.size())).bytes() + text;
}

}  // namespace gantry::detail
