#include "core/files/output_stream.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/files/output_file.hpp"

namespace gantry {

void OutputStream::open(UniqueFd file) {
  buffer_.file = std::move(file);
  clear();
}

int OutputStream::close() {
  flush();
  const int file = buffer_.file.release();
  if (file >= 0 && ::close(file) != 0 && errno != EINTR && buffer_.failure == 0) {
    buffer_.failure = errno;
  }
  if (buffer_.failure == 0 && fail()) buffer_.failure = EIO;
  if (buffer_.failure != 0) setstate(std::ios::badbit);
  return buffer_.failure;
}

OutputStream::Buffer::int_type OutputStream::Buffer::overflow(int_type character) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(character, traits_type::eof())) {
    *pptr() = traits_type::to_char_type(character);
    pbump(1);
  }
  return traits_type::not_eof(character);
}

std::streamsize OutputStream::Buffer::xsputn(const char* text, std::streamsize size) {
  if (size <= epptr() - pptr()) return std::streambuf::xsputn(text, size);
  return sync() == 0 && put(text, static_cast<std::size_t>(size)) ? size : 0;
}

int OutputStream::Buffer::sync() {
  const auto size = static_cast<std::size_t>(pptr() - pbase());
  setp(bytes.data(), bytes.data() + bytes.size());
  return size == 0 || put(bytes.data(), size) ? 0 : -1;
}

// After a failure nothing more is written.
bool OutputStream::Buffer::put(const char* text, std::size_t size) {
  if (failure == 0 && !write_all(file.get(), {text, size})) failure = errno;
  return failure == 0;
}

}  // namespace gantry
