#include <gantry/tensor/safetensors.hpp>

#include <fmt/format.h>

#include <ostream>
#include <utility>

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

void check(const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
  for (const auto& [name, tensor] : tensors) {
    detail::check_defined("save_safetensors", escape_control_characters(name), tensor);
    check_text(name);
    if (name == detail::kMetadataName) {
      throw InvalidArgument(
          "save_safetensors: expected another name for a tensor, but got '__metadata__'");
    }
  }
  for (const auto& [key, value] : metadata) {
    check_text(key);
    check_text(value);
  }
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata) {
  check(tensors, metadata);
  const std::vector<std::string> order = detail::safetensors_order(tensors);
  const std::string header = detail::safetensors_header(tensors, order, metadata);
  AtomicFile file(path, "save_safetensors: ");
  file.out() << header;
  for (const std::string& name : order) {
    if (!file.out()) break;
    detail::write_elements("save_safetensors", file.out(), tensors.find(name)->second);
  }
  file.commit();
}

Safetensors load_safetensors(const std::filesystem::path& path, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options("load_safetensors", options);
  const SafetensorsReader reader(path);
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

Tensor SafetensorsReader::load(std::string_view name, const TensorOptions& options) const {
  const auto& [entry, offset] = impl().at(name);
  const std::string shown = escape_control_characters(name);
  if (!entry.dtype) {
    impl().source.fail<DTypeError>(
        fmt::format("expected a dtype of gantry for '{}', but got {}", shown, entry.dtype_name));
  }
  if (entry.sizes.size() > static_cast<std::size_t>(kMaxDims)) {
    impl().source.fail<ShapeError>(fmt::format("expected at most {} dims for '{}', but got {}",
                                               kMaxDims, shown, entry.sizes.size()));
  }
  return detail::load_elements(impl().source, {.offset = offset}, entry.sizes, *entry.dtype,
                               detail::load_options("load_safetensors", options));
}

}  // namespace gantry
