#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <map>
#include <ostream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/tensor/npy.hpp>

#include "core/files/atomic_file.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "tensor/check.hpp"
#include "tensor/exchange/byte_source.hpp"
#include "tensor/exchange/crc32.hpp"
#include "tensor/exchange/element_io.hpp"
#include "tensor/exchange/npy_array.hpp"
#include "tensor/exchange/npy_header.hpp"
#include "tensor/exchange/zip_archive.hpp"

namespace gantry {

namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::size_t kLongestName = 0xFFFF;

// A stream that keeps the checksum of the bytes alone.
class CrcBuffer : public std::streambuf {
 public:
  [[nodiscard]] std::uint32_t value() const { return crc_.value(); }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    crc_.add(std::as_bytes(std::span(text, static_cast<std::size_t>(count))));
    return count;
  }
  int_type overflow(int_type character) override {
    const char one = traits_type::to_char_type(character);
    return xsputn(&one, 1) == 1 ? character : traits_type::eof();
  }

 private:
  detail::Crc32 crc_;
};

std::uint32_t crc_of(const Tensor& tensor) {
  CrcBuffer buffer;
  std::ostream out(&buffer);
  detail::write_npy("save_npz", out, tensor);
  return buffer.value();
}

void check_named(const std::string& name, const Tensor& tensor) {
  const std::string shown = escape_control_characters(name);
  detail::check_defined("save_npz", shown, tensor);
  detail::check_npy("save_npz", tensor);
  if (valid_utf8(name) != name || name.find('\0') != std::string::npos ||
      name.size() > kLongestName - kSuffix.size()) {
    throw InvalidArgument(fmt::format(
        "save_npz: expected a name of at most {} bytes in UTF-8 without zeros, but got '{}'",
        kLongestName - kSuffix.size(), shown.substr(0, 200)));
  }
}

std::string_view without_suffix(std::string_view name) {
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

}  // namespace

void save_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) check_named(name, tensor);
  AtomicFile file(path, "save_npz: ");
  detail::ZipWriter archive(file.out());
  for (const auto& [name, tensor] : tensors) {
    if (!file.out()) break;
    archive.begin(name + std::string(kSuffix), detail::npy_bytes(tensor), crc_of(tensor));
    detail::write_npy("save_npz", file.out(), tensor);
  }
  archive.finish();
  file.commit();
}

NamedTensors load_npz(const std::filesystem::path& path, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options("load_npz", options);
  const detail::FileSource archive("load_npz", path);
  std::map<std::string, detail::ZipEntrySource, std::less<>> arrays;
  for (const detail::ZipEntry& entry : detail::read_zip_directory(archive)) {
    const auto [place, is_new] = arrays.try_emplace(std::string(without_suffix(entry.name)),
                                                    "load_npz", path.native(), archive, entry);
    if (!is_new) {
      archive.fail(fmt::format("expected each array once, but got '{}' twice",
                               escape_control_characters(place->first)));
    }
    static_cast<void>(detail::read_npy_header(place->second));
  }
  for (const auto& [name, source] : arrays) source.check_crc();
  NamedTensors result;
  for (const auto& [name, source] : arrays) result.emplace(name, detail::read_npy(source, placed));
  return result;
}

}  // namespace gantry
