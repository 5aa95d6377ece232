#include <gantry/tensor/safetensors.hpp>

#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/files/atomic_file.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "tensor/check.hpp"
#include "tensor/exchange/byte_source.hpp"
#include "tensor/exchange/element_io.hpp"
#include "tensor/exchange/safetensors_header.hpp"

namespace gantry {

namespace {

void check_text(std::string_view text) {
  if (valid_utf8(text) == text) return;
  throw InvalidArgument(
      fmt::format("save_safetensors: expected names and metadata in UTF-8, but "
                  "got '{}'",
                  escape_control_characters(text)));
}

void check_named(const std::string& name, const Tensor& tensor) {
  detail::check_defined("save_safetensors", escape_control_characters(name), tensor);
  check_text(name);
  if (name == detail::kMetadataName) {
    throw InvalidArgument(
        "save_safetensors: expected another name for a tensor, but got '__metadata__'");
  }
}

void check_bytes(const SafetensorsBytes& one) {
  check_named(one.name, one.bytes);
  const std::string shown = escape_control_characters(one.name);
  if (one.bytes.dtype() != DType::u8) {
    throw DTypeError(
        fmt::format("save_safetensors: expected bytes of dtype u8 for '{}', but got {}", shown,
                    name(one.bytes.dtype())),
        one.bytes.device().str());
  }
  std::optional<DType> dtype;
  const std::uint64_t bits = detail::safetensors_bits(one.dtype_name, dtype);
  if (bits == 0) {
    throw InvalidArgument(
        fmt::format("save_safetensors: expected a type of the format for '{}', but got '{}'", shown,
                    escape_control_characters(one.dtype_name)));
  }
  for (const std::int64_t size : one.sizes) {
    if (size >= 0) continue;
    throw ShapeError(
        fmt::format("save_safetensors: expected sizes that are not negative for '{}', but got {}",
                    shown, size));
  }
  const auto expected = detail::safetensors_bytes(one.sizes, bits);
  if (expected != one.bytes.nbytes()) {
    throw ShapeError(fmt::format(
        "save_safetensors: expected {} bytes for '{}' by its type and shape, but got {}",
        expected ? std::to_string(*expected) : "a number of whole", shown, one.bytes.nbytes()));
  }
}

void check(const NamedTensors& tensors, const SafetensorsMetadata& metadata,
           std::span<const SafetensorsBytes> bytes) {
  for (const auto& [name, tensor] : tensors) check_named(name, tensor);
  std::set<std::string_view> names;
  for (const SafetensorsBytes& one : bytes) {
    check_bytes(one);
    if (tensors.contains(one.name) || !names.insert(one.name).second) {
      detail::refuse_twice(one.name);
    }
  }
  for (const auto& [key, value] : metadata) {
    check_text(key);
    check_text(value);
  }
}

}  // namespace

void detail::refuse_twice(const std::string& name) {
  throw InvalidArgument(fmt::format("save_safetensors: expected each name once, but got '{}' twice",
                                    escape_control_characters(name)));
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata,
                      std::span<const SafetensorsBytes> bytes) {
  check(tensors, metadata, bytes);
  const std::vector<detail::SafetensorsItem> items = detail::safetensors_items(tensors, bytes);
  const std::string header = detail::safetensors_header(items, metadata);
  AtomicFile file(path, "save_safetensors: ");
  file.out() << header;
  for (const detail::SafetensorsItem& item : items) {
    if (!file.out()) break;
    detail::write_elements("save_safetensors", file.out(), *item.tensor);
  }
  file.commit();
}

Safetensors load_safetensors(const std::filesystem::path& path, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options("load_safetensors", options);
  const SafetensorsReader reader(path);
  for (const std::string& name : reader.names()) reader.check_loadable(name);
  Safetensors result;
  for (const std::string& name : reader.names()) {
    result.tensors.emplace(name, reader.load(name, placed));
  }
  result.metadata = reader.metadata();
  return result;
}

struct SafetensorsReader::Impl {
  explicit Impl(const std::filesystem::path& path)
      : source("load_safetensors", path), header(detail::read_safetensors_header(source)) {}

  const detail::SafetensorsPlace& at(std::string_view name) const {
    const auto found = header.tensors.find(name);
    if (found != header.tensors.end()) return found->second;
    source.fail<InvalidArgument>(fmt::format("expected the name of a tensor, but got '{}'",
                                             escape_control_characters(name)));
  }

  detail::FileSource source;
  detail::SafetensorsHeader header;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : impl_(std::make_shared<const Impl>(path)) {}

const SafetensorsReader::Impl& SafetensorsReader::impl() const {
  if (impl_ != nullptr) return *impl_;
  throw InvalidArgument("SafetensorsReader: expected an open file, but got a moved-from reader");
}

const std::vector<std::string>& SafetensorsReader::names() const { return impl().header.names; }

bool SafetensorsReader::contains(std::string_view name) const {
  return impl().header.tensors.contains(name);
}

const SafetensorsEntry& SafetensorsReader::entry(std::string_view name) const {
  return impl().at(name).entry;
}

const SafetensorsMetadata& SafetensorsReader::metadata() const { return impl().header.metadata; }

void SafetensorsReader::check_loadable(std::string_view name) const {
  const SafetensorsEntry& entry = impl().at(name).entry;
  const std::string shown = escape_control_characters(name);
  if (!entry.dtype) {
    impl().source.fail<DTypeError>(
        fmt::format("expected a dtype of gantry for '{}', but got {}; "
                    "SafetensorsReader::load_bytes reads its bytes",
                    shown, entry.dtype_name));
  }
  if (entry.sizes.size() > static_cast<std::size_t>(kMaxDims)) {
    impl().source.fail<ShapeError>(fmt::format("expected at most {} dims for '{}', but got {}",
                                               kMaxDims, shown, entry.sizes.size()));
  }
}

Tensor SafetensorsReader::load(std::string_view name, const TensorOptions& options) const {
  check_loadable(name);
  const auto& [entry, offset] = impl().at(name);
  return detail::load_elements(impl().source, {.offset = offset}, entry.sizes, *entry.dtype,
                               detail::load_options("load_safetensors", options));
}

Tensor SafetensorsReader::load_bytes(std::string_view name, const TensorOptions& options) const {
  const auto& [entry, offset] = impl().at(name);
  if (options.dtype.value_or(DType::u8) != DType::u8) {
    throw DTypeError(fmt::format("load_bytes: expected dtype u8 for bytes, but got {}",
                                 gantry::name(*options.dtype)));
  }
  return detail::load_elements(impl().source, {.offset = offset},
                               {static_cast<std::int64_t>(entry.bytes)}, DType::u8,
                               detail::load_options("load_bytes", options));
}

}  // namespace gantry
