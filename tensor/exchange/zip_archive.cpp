#include "tensor/exchange/zip_archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>

#include "core/bytes.hpp"
#include "core/text/escaped_text.hpp"
#include "tensor/exchange/crc32.hpp"

// The layout is that of PKWARE's APPNOTE.TXT, version 6.3.
namespace gantry::detail {

namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint16_t kExtra64 = 1;
constexpr std::size_t kLocalHeaderBytes = 30;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kEnd64LocatorBytes = 20;
constexpr std::size_t kLongestComment = 0xFFFF;
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  // the number is in an extra field or record
constexpr std::uint16_t kEntriesIn64 = 0xFFFF;
constexpr std::uint16_t kEncrypted = 1;
constexpr std::uint16_t kUtf8 = 1 << 11;
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kVersion = 20, kVersion64 = 45;
constexpr std::uint16_t kFirstDay = 1 << 5 | 1;  // 1980-01-01, the first date of the format
constexpr std::size_t kPiece = std::size_t{1} << 20;

[[noreturn]] void fail_malformed(const ByteSource& source, std::string_view what) {
  source.fail(fmt::format("expected a zip archive, but {}", what));
}

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t end = 0;  // the offset of the record behind it
};

// The offset of the end record, which a comment may follow.
std::optional<std::uint64_t> find_end(const ByteSource& source) {
  if (source.size() < kEndBytes) return std::nullopt;
  const auto searched =
      static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kEndBytes + kLongestComment));
  const std::uint64_t first = source.size() - searched;
  const std::string tail = source.text(first, searched);
  for (std::size_t at = searched - kEndBytes + 1; at-- > 0;) {
    ByteReader reader(std::string_view(tail).substr(at));
    if (reader.number<std::uint32_t>() != kEnd) continue;
    static_cast<void>(reader.raw(kEndBytes - 4 - 2));
    if (reader.number<std::uint16_t>() == searched - at - kEndBytes) return first + at;
  }
  return std::nullopt;
}

// The record of archives with 64-bit numbers, before the end record at `end`.
Directory directory64(const ByteSource& source, std::uint64_t end) {
  if (end < kEnd64LocatorBytes) fail_malformed(source, "its zip64 record is missing");
  const std::string text = source.text(end - kEnd64LocatorBytes, kEnd64LocatorBytes);
  ByteReader reader(text);
  const bool is_locator = reader.number<std::uint32_t>() == kEnd64Locator;
  const auto disk = reader.number<std::uint32_t>();
  const auto at = reader.number<std::uint64_t>();
  if (!is_locator || disk != 0 || at > end - kEnd64LocatorBytes ||
      end - kEnd64LocatorBytes - at < kEnd64Bytes) {
    fail_malformed(source, "its zip64 record is missing");
  }
  const std::string record = source.text(at, kEnd64Bytes);
  ByteReader fields(record);
  Directory directory;
  const bool is_record = fields.number<std::uint32_t>() == kEnd64;
  static_cast<void>(fields.raw(8 + 2 + 2 + 4 + 4 + 8));  // size, versions, disks, entries of it
  directory.entries = fields.number<std::uint64_t>();
  directory.bytes = fields.number<std::uint64_t>();
  directory.offset = fields.number<std::uint64_t>();
  directory.end = at;
  if (!is_record) fail_malformed(source, "its zip64 record is missing");
  return directory;
}

Directory find_directory(const ByteSource& source) {
  const std::optional<std::uint64_t> end = find_end(source);
  if (!end) fail_malformed(source, "its end record is missing");
  const std::string text = source.text(*end, kEndBytes);
  ByteReader reader(text);
  static_cast<void>(reader.raw(4));
  const auto disk = reader.number<std::uint16_t>(), first_disk = reader.number<std::uint16_t>();
  static_cast<void>(reader.number<std::uint16_t>());
  const auto entries = reader.number<std::uint16_t>();
  const auto bytes = reader.number<std::uint32_t>(), offset = reader.number<std::uint32_t>();
  Directory directory{.offset = offset, .bytes = bytes, .entries = entries, .end = *end};
  if (entries == kEntriesIn64 || bytes == kIn64 || offset == kIn64) {
    directory = directory64(source, *end);
  } else if (disk != 0 || first_disk != 0) {
    fail_malformed(source, "it is split into several files");
  }
  if (directory.offset > directory.end || directory.end - directory.offset != directory.bytes) {
    fail_malformed(source, fmt::format("its directory is not the {} bytes at offset {}",
                                       directory.bytes, directory.offset));
  }
  return directory;
}

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An entry of the directory, with the offset of its local header.
ZipEntry next_entry(const ByteSource& source, ByteReader& reader) {
  const bool is_entry = reader.number<std::uint32_t>() == kDirectoryEntry;
  static_cast<void>(reader.raw(2 + 2));  // versions
  const auto flags = reader.number<std::uint16_t>();
  const auto method = reader.number<std::uint16_t>();
  static_cast<void>(reader.raw(2 + 2));  // time and date
  ZipEntry entry;
  entry.crc = reader.number<std::uint32_t>();
  std::uint64_t packed = reader.number<std::uint32_t>();
  entry.size = reader.number<std::uint32_t>();
  const auto name_bytes = reader.number<std::uint16_t>();
  const auto extra_bytes = reader.number<std::uint16_t>();
  const auto comment_bytes = reader.number<std::uint16_t>();
  static_cast<void>(reader.raw(2 + 2 + 4));  // disk and attributes
  entry.offset = reader.number<std::uint32_t>();
  entry.name = characters(reader.raw(name_bytes));
  ByteReader extra(reader.raw(extra_bytes));
  static_cast<void>(reader.raw(comment_bytes));
  if (!is_entry || !reader.ok()) fail_malformed(source, "its directory is malformed");
  while (extra.ok() && !extra.finished()) {
    const auto kind = extra.number<std::uint16_t>();
    ByteReader numbers(extra.raw(extra.number<std::uint16_t>()));
    if (kind != kExtra64) continue;
    for (std::uint64_t* const number : {&entry.size, &packed, &entry.offset}) {
      if (*number == kIn64) *number = numbers.number<std::uint64_t>();
    }
    if (!numbers.ok()) fail_malformed(source, "its directory is malformed");
  }
  const std::string shown = escape_control_characters(entry.name);
  if ((flags & kEncrypted) != 0) {
    source.fail(fmt::format("expected an entry without encryption, but got '{}'", shown));
  }
  if (method != kStored) {
    source.fail(
        fmt::format("expected entries without compression, but '{}' is compressed with "
                    "method {}; write the archive with numpy.savez or save_npz",
                    shown, method));
  }
  if (packed != entry.size) {
    fail_malformed(source, fmt::format("'{}' has two sizes, {} and {}", shown, packed, entry.size));
  }
  return entry;
}

// Moves the offset of `entry` from its local header to its content. The header has its name.
void enter(const ByteSource& source, const Directory& directory, ZipEntry& entry) {
  const std::string shown = escape_control_characters(entry.name);
  const auto fits = [&](std::uint64_t bytes) {
    return entry.offset <= directory.offset && directory.offset - entry.offset >= bytes;
  };
  const auto check = [&](bool is_right) {
    if (!is_right) fail_malformed(source, fmt::format("the header of '{}' is malformed", shown));
  };
  check(fits(kLocalHeaderBytes));
  const std::string text = source.text(entry.offset, kLocalHeaderBytes);
  ByteReader reader(text);
  check(reader.number<std::uint32_t>() == kLocalHeader);
  static_cast<void>(reader.raw(kLocalHeaderBytes - 4 - 2 - 2));
  const std::size_t name_bytes = reader.number<std::uint16_t>();
  const std::size_t extra_bytes = reader.number<std::uint16_t>();
  check(name_bytes == entry.name.size() && fits(kLocalHeaderBytes + name_bytes + extra_bytes));
  check(source.text(entry.offset + kLocalHeaderBytes, name_bytes) == entry.name);
  entry.offset += kLocalHeaderBytes + name_bytes + extra_bytes;
  if (!fits(entry.size)) {
    fail_malformed(source, fmt::format("the {} bytes of '{}' exceed it", entry.size, shown));
  }
}

// Contents that overlap would make a small file a large one.
void check_apart(const ByteSource& source, std::vector<ZipEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].offset - entries[i - 1].offset >= entries[i - 1].size) continue;
    fail_malformed(
        source, fmt::format("'{}' and '{}' overlap", escape_control_characters(entries[i - 1].name),
                            escape_control_characters(entries[i].name)));
  }
}

std::uint32_t small(std::uint64_t number) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, kIn64));
}

// The extra field of those `numbers` that have more than 32 bits.
std::string extra64(std::initializer_list<std::uint64_t> numbers) {
  ByteWriter<std::string> fields;
  for (const std::uint64_t number : numbers) {
    if (number >= kIn64) fields.number(number);
  }
  if (fields.bytes().empty()) return {};
  ByteWriter<std::string> extra;
  extra.number(kExtra64).number(static_cast<std::uint16_t>(fields.bytes().size()));
  return extra.bytes() + fields.bytes();
}

// The fields that both headers of an entry share: from the version that reads it to the sizes.
std::string described(const ZipEntry& entry, std::uint16_t version) {
  const bool is_ascii = std::all_of(entry.name.begin(), entry.name.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  ByteWriter<std::string> writer;
  writer.number(version).number(is_ascii ? std::uint16_t{0} : kUtf8).number(kStored);
  writer.number(std::uint16_t{0}).number(kFirstDay).number(entry.crc);
  writer.number(small(entry.size)).number(small(entry.size));
  return writer.bytes();
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(const ByteSource& source) {
  const Directory directory = find_directory(source);
  const std::string text = source.text(directory.offset, static_cast<std::size_t>(directory.bytes));
  ByteReader reader(text);
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    ZipEntry entry = next_entry(source, reader);
    if (!names.insert(entry.name).second) {
      fail_malformed(source,
                     fmt::format("'{}' is there twice", escape_control_characters(entry.name)));
    }
    enter(source, directory, entry);
    entries.push_back(std::move(entry));
  }
  if (!reader.finished()) fail_malformed(source, "its directory is malformed");
  check_apart(source, entries);
  return entries;
}

ZipEntrySource::ZipEntrySource(std::string_view op, std::string_view path,
                               const ByteSource& archive, const ZipEntry& entry)
    : ByteSource(op, fmt::format("'{}' of '{}'", escape_control_characters(entry.name),
                                 escape_control_characters(path))),
      archive_(archive),
      entry_(entry) {
  size_ = entry.size;
}

void ZipEntrySource::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  archive_.read(entry_.offset + offset, out, bytes);
}

void ZipEntrySource::check_crc() const {
  Crc32 crc;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(size_, kPiece)));
  for (std::uint64_t at = 0; at < size_; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size_ - at, kPiece)));
    read(at, piece.data(), piece.size());
    crc.add(piece);
  }
  if (crc.value() == entry_.crc) return;
  fail(fmt::format("expected the checksum {:08x}, but got {:08x}", entry_.crc, crc.value()));
}

void ZipWriter::write(std::string_view text) {
  out_ << text;
  end_ += text.size();
}

void ZipWriter::begin(std::string_view name, std::uint64_t size, std::uint32_t crc) {
  const ZipEntry& entry = entries_.emplace_back(ZipEntry{std::string(name), end_, size, crc});
  // A local header has both sizes in its extra field.
  const std::string extra = extra64({size, size});
  ByteWriter<std::string> writer;
  writer.number(kLocalHeader);
  write(writer.bytes() + described(entry, extra.empty() ? kVersion : kVersion64));
  ByteWriter<std::string> lengths;
  lengths.number(static_cast<std::uint16_t>(name.size()));
  lengths.number(static_cast<std::uint16_t>(extra.size()));
  write(lengths.bytes() + entry.name + extra);
  end_ += size;
}

void ZipWriter::finish() {
  const std::uint64_t first = end_;
  for (const ZipEntry& entry : entries_) {
    const std::string extra = extra64({entry.size, entry.size, entry.offset});
    const std::uint16_t version = extra.empty() ? kVersion : kVersion64;
    ByteWriter<std::string> writer;
    writer.number(kDirectoryEntry).number(version);
    write(writer.bytes() + described(entry, version));
    ByteWriter<std::string> rest;
    rest.number(static_cast<std::uint16_t>(entry.name.size()));
    rest.number(static_cast<std::uint16_t>(extra.size())).number(std::uint16_t{0});
    rest.number(std::uint16_t{0}).number(std::uint16_t{0}).number(std::uint32_t{0});
    rest.number(small(entry.offset));
    write(rest.bytes() + entry.name + extra);
  }
  const std::uint64_t bytes = end_ - first, count = entries_.size(), at = end_;
  const bool is_large = count >= kEntriesIn64 || bytes >= kIn64 || first >= kIn64;
  ByteWriter<std::string> writer;
  if (is_large) {
    writer.number(kEnd64).number(std::uint64_t{kEnd64Bytes - 12});
    writer.number(kVersion64).number(kVersion64);
    writer.number(std::uint32_t{0}).number(std::uint32_t{0}).number(count).number(count);
    writer.number(bytes).number(first);
    writer.number(kEnd64Locator).number(std::uint32_t{0}).number(at).number(std::uint32_t{1});
  }
  const auto entries = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kEntriesIn64));
  writer.number(kEnd).number(std::uint16_t{0}).number(std::uint16_t{0});
  writer.number(entries).number(entries).number(small(bytes)).number(small(first));
  writer.number(std::uint16_t{0});
  write(writer.bytes());
}

}  // namespace gantry::detail
