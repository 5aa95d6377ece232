// Bytes that a user hands over: a file, or memory. Nothing in them is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>

namespace gantry::detail {

// Bytes with a fixed size that are read by position. Thread safety: all members.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Copies `bytes` bytes from `offset` to `out`. Precondition: they lie within size().
  // Throws: Error if a file became shorter, or cannot be read.
  virtual void read(std::uint64_t offset, void* out, std::size_t bytes) const = 0;
  [[nodiscard]] std::string text(std::uint64_t offset, std::size_t bytes) const;

  // Throws an E "load_npy: failed to read 'x.npy': <reason>".
  template <class E = Error>
  [[noreturn]] void fail(std::string_view reason,
                         std::source_location where = std::source_location::current()) const {
    throw E(prefix_ + std::string(reason), {}, where);
  }

 protected:
  ByteSource(std::string_view op, std::string_view object);

  std::string prefix_;
  std::uint64_t size_ = 0;
};

// A regular file. It is read, not mapped: a mapped file that another process truncates would end
// the program with a signal.
class FileSource final : public ByteSource {
 public:
  // Throws: Error unless `path` names a regular file that can be read.
  FileSource(std::string_view op, const std::filesystem::path& path);
  void read(std::uint64_t offset, void* out, std::size_t bytes) const override;

 private:
  UniqueFd file_;
};

// The caller's memory.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string_view op, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, void* out, std::size_t bytes) const override;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace gantry::detail
