// A stream into an open file.
#pragma once

#include <array>
#include <ostream>
#include <streambuf>

#include <gantry/extend/unique_fd.hpp>

namespace gantry {

/// A stream that writes to a descriptor, and keeps the reason of the first failure.
class OutputStream final : public std::ostream {
 public:
  OutputStream() : std::ostream(nullptr) { rdbuf(&buffer_); }
  /// Takes over `file`.
  explicit OutputStream(UniqueFd file) : OutputStream() { open(std::move(file)); }

  /// Takes over `file`, in place of none.
  void open(UniqueFd file);
  /// The descriptor; -1 for none.
  [[nodiscard]] int descriptor() const { return buffer_.file.get(); }
  /// Writes what waits, and closes the file. Returns 0, or the errno of the first failure.
  [[nodiscard]] int close();

 private:
  struct Buffer final : std::streambuf {
    Buffer() { setp(bytes.data(), bytes.data() + bytes.size()); }
    ~Buffer() override { static_cast<void>(sync()); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    int_type overflow(int_type character) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;
    bool put(const char* text, std::size_t size);

    UniqueFd file;
    int failure = 0;
    std::array<char, 1 << 16> bytes;
  };

  Buffer buffer_;
};

}  // namespace gantry
