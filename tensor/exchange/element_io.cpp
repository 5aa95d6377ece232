#include "tensor/exchange/element_io.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gantry/streams/event.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "streams/sanitizer/hooks.hpp"
#include "tensor/check.hpp"

namespace gantry::detail {

namespace {

// Calls `visit` for parts of at most `most` elements, in row-major order.
void for_each_piece(const Tensor& tensor, std::int64_t most,
                    const std::function<void(const Tensor&)>& visit) {
  if (tensor.numel() <= most) {
    if (tensor.numel() > 0) visit(tensor);
    return;
  }
  const std::int64_t rows = tensor.size(0);
  const std::int64_t row = tensor.numel() / rows;
  if (row > most) {
    for (std::int64_t i = 0; i < rows; ++i) for_each_piece(tensor.select(0, i), most, visit);
    return;
  }
  const std::int64_t step = most / row;
  for (std::int64_t i = 0; i < rows; i += step) {
    visit(tensor.narrow(0, i, std::min(step, rows - i)));
  }
}

std::int64_t piece_elements(DType dtype) {
  return kPieceBytes / static_cast<std::int64_t>(element_size(dtype));
}

// Host memory for the elements of a piece.
Tensor host_buffer(const Tensor& tensor) {
  return empty({std::min(tensor.numel(), piece_elements(tensor.dtype()))},
               {.dtype = tensor.dtype(), .pinned = tensor.is_cuda()});
}

// The first elements of `buffer`, with the shape of `piece`.
Tensor shaped_like(const Tensor& piece, const Tensor& buffer) {
  return buffer.narrow(0, 0, piece.numel()).view(piece.sizes());
}

void normalize_bools(std::uint8_t* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

template <class Word>
void reverse_words(std::byte* bytes, std::size_t size) {
  for (std::size_t at = 0; at < size; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes + at, sizeof word);
    if constexpr (sizeof(Word) == 2) word = __builtin_bswap16(word);
    if constexpr (sizeof(Word) == 4) word = __builtin_bswap32(word);
    if constexpr (sizeof(Word) == 8) word = __builtin_bswap64(word);
    std::memcpy(bytes + at, &word, sizeof word);
  }
}

void reverse_elements(std::byte* bytes, std::size_t size, std::size_t element) {
  if (element == 2) reverse_words<std::uint16_t>(bytes, size);
  if (element == 4) reverse_words<std::uint32_t>(bytes, size);
  if (element == 8) reverse_words<std::uint64_t>(bytes, size);
}

// A stream, and errno of the write that failed. Frees and CUDA calls may change errno afterwards.
class Output {
 public:
  explicit Output(std::ostream& out) : out_(out) {}
  ~Output() {
    if (failure_ != 0) errno = failure_;
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool ok() const { return out_.good(); }
  // Writes a contiguous CPU tensor.
  void write(const Tensor& host) {
    if (host.dtype() != DType::bool_) return write(host.data(), host.nbytes());
    for_each_piece(host.view({host.numel()}), kPieceBytes, [&](const Tensor& piece) {
      std::string copy(static_cast<const char*>(piece.data()), piece.nbytes());
      normalize_bools(reinterpret_cast<std::uint8_t*>(copy.data()), copy.size());
      write(copy.data(), copy.size());
    });
  }

 private:
  void write(const void* data, std::size_t bytes) {
    if (!ok()) return;
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    if (!ok()) failure_ = errno;
  }

  std::ostream& out_;
  int failure_ = 0;
};

void write_from_device(Output& out, const Tensor& tensor) {
  const Stream stream = Stream::current(tensor.device());
  std::array<Tensor, 2> buffers{host_buffer(tensor)};
  std::array<Event, 2> copied;
  std::optional<Tensor> pending;  // a part of the buffer that is not `current`
  std::size_t current = 0;
  const auto write_pending = [&](std::size_t buffer) {
    if (!pending) return;
    copied[buffer].synchronize();
    out.write(*pending);
  };
  for_each_piece(tensor, piece_elements(tensor.dtype()), [&](const Tensor& piece) {
    if (!out.ok()) return;
    if (!buffers[current].defined()) buffers[current] = host_buffer(tensor);
    const Tensor host = shaped_like(piece, buffers[current]);
    host.copy_(piece, {.non_blocking = true});
    stream.record(copied[current]);
    write_pending(1 - current);
    pending = host;
    current = 1 - current;
  });
  if (out.ok()) write_pending(1 - current);
}

// Reads the elements of a contiguous CPU tensor, which start at `offset`.
void read_dense(const ByteSource& source, std::uint64_t offset, bool big_endian,
                const Tensor& host) {
  auto* const bytes = static_cast<std::byte*>(host.data());
  source.read(offset, bytes, host.nbytes());
  if (host.dtype() == DType::bool_) {
    normalize_bools(reinterpret_cast<std::uint8_t*>(bytes), host.nbytes());
  }
  if (big_endian) reverse_elements(bytes, host.nbytes(), host.element_size());
}

void read_to_device(const ByteSource& source, const StoredElements& stored, const Tensor& out) {
  const Stream stream = Stream::current(out.device());
  const Tensor flat = out.view({out.numel()});
  std::array<Tensor, 2> buffers;
  std::array<Event, 2> copied;
  std::size_t current = 0;
  std::uint64_t offset = stored.offset;
  for_each_piece(flat, piece_elements(out.dtype()), [&](const Tensor& piece) {
    if (buffers[current].defined()) {
      copied[current].synchronize();
    } else {
      buffers[current] = host_buffer(out);
    }
    const Tensor host = shaped_like(piece, buffers[current]);
    read_dense(source, offset, stored.big_endian, host);
    piece.copy_(host, {.non_blocking = true});
    stream.record(copied[current]);
    offset += host.nbytes();
    current = 1 - current;
  });
  stream.synchronize();
}

}  // namespace

void write_elements(std::string_view op, std::ostream& stream, const Tensor& tensor) {
  if (tensor.numel() == 0) return;
  Output out(stream);
  const Tensor flat = tensor.is_contiguous() ? tensor.view({tensor.numel()}) : tensor;
  if (tensor.is_cuda()) return write_from_device(out, flat);
  if (sanitizer::is_on()) sanitizer::uses_on_host(op, {sanitizer::reads(tensor)});
  if (tensor.is_contiguous()) return out.write(flat);
  const Tensor buffer = host_buffer(tensor);
  for_each_piece(tensor, piece_elements(tensor.dtype()), [&](const Tensor& piece) {
    if (!out.ok()) return;
    const Tensor host = shaped_like(piece, buffer);
    host.copy_(piece);
    out.write(host);
  });
}

TensorOptions load_options(std::string_view op, const TensorOptions& options) {
  TensorOptions result = options;
  result.device = options.device.value_or(Device::cpu()).resolved();
  check_pinned(op, *result.device, options.pinned);
  return result;
}

Tensor load_elements(const ByteSource& source, const StoredElements& stored, const Shape& sizes,
                     DType stored_dtype, const TensorOptions& options) {
  TensorOptions placed = options;
  placed.dtype = stored_dtype;
  const Tensor result = empty(sizes, placed);
  if (result.numel() > 0) {
    if (result.is_cuda()) {
      read_to_device(source, stored, result);
    } else {
      read_dense(source, stored.offset, stored.big_endian, result);
    }
  }
  return result.to({.dtype = options.dtype.value_or(stored_dtype), .pinned = options.pinned});
}

}  // namespace gantry::detail
