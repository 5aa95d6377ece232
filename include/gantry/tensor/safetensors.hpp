#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/options.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Tensors by name.
using NamedTensors = std::map<std::string, Tensor, std::less<>>;
/// The metadata of a safetensors file: texts by name.
using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

/// The content of a safetensors file: `auto [tensors, metadata] = load_safetensors(path)`.
/// @since 0.3
struct Safetensors {
  NamedTensors tensors{};          ///< by name
  SafetensorsMetadata metadata{};  ///< "__metadata__" of the file
};

/// A tensor as the header of a safetensors file describes it.
/// @since 0.3
struct SafetensorsEntry {
  std::string dtype_name{};           ///< as in the file: "F32", "F8_E4M3"
  std::optional<DType> dtype{};       ///< absent if gantry has no such type
  std::vector<std::int64_t> sizes{};  ///< shape; load() needs at most 8 dims
  std::uint64_t bytes = 0;            ///< of the elements
};

/// A tensor of any type of the format, as bytes: save_safetensors() writes it.
/// @since 0.3
struct SafetensorsBytes {
  std::string name{};                 ///< in the file
  std::string dtype_name{};           ///< a type of the format: "F4", "U16"
  std::vector<std::int64_t> sizes{};  ///< shape, in elements of that type
  Tensor bytes{};                     ///< u8, of any shape: the elements in row-major order
};

/// Writes tensors to a safetensors file, with the bytes that the reference implementation writes.
///
/// `bytes` are tensors of types that gantry does not have, as SafetensorsReader::load_bytes() reads
/// them. The names of both lists differ. The file is replaced atomically: after an error the
/// previous file is unchanged. Tensors that share memory are written separately. They may be on
/// several devices, in any layout. Device/stream: current stream of each tensor's device; the host
/// blocks. Device memory passes through page-locked buffers of 8 MiB. Throws: InvalidArgument for
/// an undefined tensor, for the name "__metadata__", for a name that is there twice, for names and
/// texts that are no UTF-8, and for an unknown type or a wrong number of `bytes`; DTypeError for
/// `bytes` that are not u8; Error if the header would exceed 100 MB or the file cannot be written.
/// Example: `save_safetensors("weights.safetensors", {{"w", ones({2, 3})}});`
/// @since 0.3
GANTRY_API void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                 const SafetensorsMetadata& metadata = {},
                                 std::span<const SafetensorsBytes> bytes = {});

namespace detail {

// A map or a list of pairs.
template <class R, class Value>
concept NamedRange = requires(const R& range) {
  { std::begin(range)->first } -> std::convertible_to<std::string>;
  { std::begin(range)->second } -> std::convertible_to<Value>;
};

[[noreturn]] GANTRY_API void refuse_twice(const std::string& name);

template <class Map, class R>
Map named_map(const R& range) {
  Map result;
  for (const auto& [name, value] : range) {
    if (!result.emplace(name, value).second) refuse_twice(name);
  }
  return result;
}

}  // namespace detail

/// As above, for names and values of other maps or lists, such as std::map<std::string, Tensor>.
/// @since 0.3
template <detail::NamedRange<Tensor> Tensors = NamedTensors,
          detail::NamedRange<std::string> Texts = SafetensorsMetadata>
requires(!std::same_as<Tensors, NamedTensors> ||
         !std::same_as<
             Texts, SafetensorsMetadata>) void save_safetensors(const std::filesystem::path& path,
                                                                const Tensors& tensors,
                                                                const Texts& metadata = {},
                                                                std::span<const SafetensorsBytes>
                                                                    bytes = {}) {
  save_safetensors(path, detail::named_map<NamedTensors>(tensors),
                   detail::named_map<SafetensorsMetadata>(metadata), bytes);
}

/// Reads all tensors of a safetensors file. If gantry does not have the type of one of them,
/// nothing is loaded; SafetensorsReader then loads the others.
/// DTypes: those of the file; `options.dtype` converts them all.
/// Device/stream: as save_safetensors. Default device: the CPU.
/// Throws: as SafetensorsReader and its load(); as empty() for the options.
/// @since 0.3
[[nodiscard]] GANTRY_API Safetensors load_safetensors(const std::filesystem::path& path,
                                                      const TensorOptions& options = {});
template <TensorOption T>
[[nodiscard]] Safetensors load_safetensors(const std::filesystem::path& path, T option) {
  return load_safetensors(path, detail::only(option));
}

/// An open safetensors file, whose tensors are read one by one. A rank can thus read only the
/// tensors that it needs.
///
/// The file need not be trusted: the whole header is checked before anything is loaded. Copies
/// share the open file. Members of a moved-from reader throw InvalidArgument.
/// Thread safety: all members from any thread. Precondition: the file is not written while it is
/// open.
/// @code
/// save_safetensors("weights.safetensors", {{"w", ones({2, 3})}});
/// const SafetensorsReader reader("weights.safetensors");
/// const Tensor w = reader.load("w", "cuda:0");
/// @endcode
/// @since 0.3
class GANTRY_API SafetensorsReader {
 public:
  /// Opens a file and reads its header.
  ///
  /// Throws: Error, with the file and the reason, unless it is a regular file with a valid header
  /// of at most 100 MB. The tensors must cover the bytes after the header without holes and
  /// overlaps, and their names must be unique.
  explicit SafetensorsReader(const std::filesystem::path& path);

  /// The names of the tensors, in the order of the file.
  [[nodiscard]] const std::vector<std::string>& names() const;
  /// True if there is a tensor of this name.
  [[nodiscard]] bool contains(std::string_view name) const;
  /// The header's description of a tensor. Throws: InvalidArgument for an unknown name.
  [[nodiscard]] const SafetensorsEntry& entry(std::string_view name) const;
  /// The metadata of the file.
  [[nodiscard]] const SafetensorsMetadata& metadata() const;

  /// Reads one tensor. Device/stream: as load_safetensors.
  /// Throws: InvalidArgument for an unknown name; DTypeError for an element type that gantry does
  /// not have; ShapeError for more than 8 dims; Error if the file became shorter.
  [[nodiscard]] Tensor load(std::string_view name, const TensorOptions& options = {}) const;
  template <TensorOption T>
  [[nodiscard]] Tensor load(std::string_view name, T option) const {
    return load(name, detail::only(option));
  }
  /// Reads the bytes of one tensor, whatever its type is, as a u8 tensor of one dim.
  /// `options.dtype` is absent or u8. Device/stream: as load_safetensors.
  /// Throws: InvalidArgument for an unknown name; DTypeError for another dtype; Error if the file
  /// became shorter.
  [[nodiscard]] Tensor load_bytes(std::string_view name, const TensorOptions& options = {}) const;
  template <TensorOption T>
  [[nodiscard]] Tensor load_bytes(std::string_view name, T option) const {
    return load_bytes(name, detail::only(option));
  }

 private:
  struct GANTRY_LOCAL Impl;
  [[nodiscard]] const Impl& impl() const;
  // Throws as load() does, before anything is read.
  void check_loadable(std::string_view name) const;
  friend GANTRY_API Safetensors load_safetensors(const std::filesystem::path& path,
                                                 const TensorOptions& options);

  std::shared_ptr<const Impl> impl_;
};

}  // namespace gantry
