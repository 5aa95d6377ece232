// Zip archives whose entries are stored: not compressed, not encrypted, in one file.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/exchange/byte_source.hpp"

namespace gantry::detail {

struct ZipEntry {
  std::string name{};
  std::uint64_t offset = 0;  // of the content in the archive
  std::uint64_t size = 0;    // of the content
  std::uint32_t crc = 0;     // of the content
};

// Reads the directory of an archive, in its order. All contents lie within the source, and do not
// overlap. Names differ. Throws: Error, with the source's name.
[[nodiscard]] std::vector<ZipEntry> read_zip_directory(const ByteSource& source);

// The content of one entry.
class ZipEntrySource final : public ByteSource {
 public:
  // `archive` outlives this object. `op` and `path` are for errors.
  ZipEntrySource(std::string_view op, std::string_view path, const ByteSource& archive,
                 const ZipEntry& entry);
  void read(std::uint64_t offset, void* out, std::size_t bytes) const override;
  // Throws: Error unless the content has the checksum of the directory.
  void check_crc() const;

 private:
  const ByteSource& archive_;
  ZipEntry entry_;
};

// Writes an archive from front to back. Entries and archives may exceed 4 GiB.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}
  // Writes the header of an entry. The caller then writes `size` bytes of that checksum.
  // Precondition: the name is UTF-8, and shorter than 2^16 bytes.
  void begin(std::string_view name, std::uint64_t size, std::uint32_t crc);
  // Writes the directory.
  void finish();

 private:
  void write(std::string_view text);

  std::ostream& out_;
  std::vector<ZipEntry> entries_;  // with the offsets of their headers
  std::uint64_t end_ = 0;          // of the last entry
};

}  // namespace gantry::detail
