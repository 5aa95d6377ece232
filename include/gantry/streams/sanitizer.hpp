#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// Two operations access the same memory, no order exists between them, and at least one writes.
/// The stream sanitizer throws it.
/// @code
/// sanitizer::enable(sanitizer::Mode::throw_);
/// try {
///   // work on several streams
/// } catch (const RaceError& error) {
///   std::cout << error.what();
/// }
/// @endcode
/// @since 0.3
class GANTRY_API RaceError : public Error {
 public:
  /// Makes an error with text `message`; `device` as for Error.
  explicit RaceError(const std::string& message, std::string_view device = {},
                     std::source_location where = std::source_location::current())
      : Error(message, device, where) {}
};

/// The stream sanitizer. It reports accesses of two streams to the same memory that no event,
/// synchronization or graph orders.
///
/// Orders come from streams, events, synchronizing calls and replays of graphs. A call that blocks
/// the host precedes all later submissions, of every thread. Timing is no order: a race is reported
/// even if the accesses did not overlap.
/// @since 0.3
namespace sanitizer {

/// Reaction to a race.
/// @since 0.3
enum class Mode : std::uint8_t {
  off,     ///< nothing is tracked
  warn,    ///< a warning for each pair of call sites, once
  throw_,  ///< RaceError from the second operation, before it is submitted
};

/// Sets the sanitizer's mode, for all threads and devices. GANTRY_SANITIZER=warn|throw does the
/// same when the first device is used.
///
/// When it turns on, it knows no earlier accesses, so it does not check work submitted before the
/// call, nor replays of graphs captured before it. A warning names each such graph's first replay,
/// and Report::unknown_replays counts them. Preconditions: no other thread submits work during the
/// call. A driver of exchange_driver() is in use only if it stays until the end of the process.
/// Throws: NotSupported without a platform.
/// @code
/// sanitizer::enable(sanitizer::Mode::warn);
/// (void)ones({4}, "cuda:0");
/// std::cout << sanitizer::report().str();
/// @endcode
GANTRY_API void enable(Mode mode);
/// The mode in use.
[[nodiscard]] GANTRY_API Mode mode() noexcept;

/// One side of a race.
/// @since 0.3
struct GANTRY_API Access {
  std::string operation;     ///< name, such as "add"; "free" for the free of a block
  bool is_write = false;     ///< false: the memory is read
  bool is_host = false;      ///< true for an access of the host, which has no stream
  Device device;             ///< of the stream
  std::uint64_t stream = 0;  ///< Stream::id()
  DType dtype = DType::u8;   ///< of the tensor; u8 for plain bytes
  Dims sizes;                ///< of the tensor
  /// The program's call of gantry, as "file:line function"; empty if unknown. For a graph: the call
  /// that replayed it.
  std::string call_site;
  std::string captured_at;  ///< call site of the operation in the capture; empty without a graph

  /// The access in one line.
  [[nodiscard]] std::string str() const;
};

/// Two accesses without an order.
/// @since 0.3
struct GANTRY_API Race {
  Access first;                ///< submitted first
  Access second;               ///< submitted second; RaceError is thrown here
  std::uintptr_t address = 0;  ///< first byte of the memory that both may access
  std::uint64_t count = 0;     ///< number of races of this pair of call sites

  /// The text of the warning and of the RaceError.
  [[nodiscard]] std::string str() const;
};

/// The races found since the sanitizer was enabled or cleared.
/// @since 0.3
struct GANTRY_API Report {
  std::vector<Race> races;  ///< one for each pair of call sites and kinds of access; at most 1000
  std::uint64_t operations = 0;  ///< operations that were checked
  /// Replays that were not checked: their graphs were captured before enable().
  std::uint64_t unknown_replays = 0;

  /// The races as text, one paragraph each; one line if there are none. A last line counts the
  /// replays that were not checked.
  [[nodiscard]] std::string str() const;
};

/// A copy of the findings. Looks up the names of call sites, so the first call may be slow.
/// Thread safety: any thread.
[[nodiscard]] GANTRY_API Report report();
/// Deletes the findings, but keeps the known accesses. Warnings may then repeat.
GANTRY_API void clear();

/// A tensor: data(), dtype(), sizes() and strides().
/// @since 0.3
template <class T>
concept TensorLike = requires(const T& tensor) {
  { tensor.data() } -> std::convertible_to<const void*>;
  { tensor.dtype() } -> std::same_as<DType>;
  { tensor.sizes() } -> std::convertible_to<Dims>;
  { tensor.strides() } -> std::convertible_to<Dims>;
};

/// Elements in memory: an address, a dtype and a layout. Does not own them.
/// @since 0.3
struct Region {
  const void* data = nullptr;  ///< address of element (0, …, 0)
  DType dtype = DType::u8;     ///< element type
  Dims sizes;                  ///< of each dimension
  Dims strides;                ///< in elements; one for each size

  /// Elements at `address` with this layout.
  Region(const void* address, DType type, const Dims& sizes, const Dims& strides)
      : data(address), dtype(type), sizes(sizes), strides(strides) {}
  /// `count` bytes from `address`.
  Region(const void* address, std::size_t count)
      : data(address), sizes{static_cast<std::int64_t>(count)}, strides{1} {}
  /// The elements of a tensor.
  template <TensorLike T>
  Region(const T& tensor)  // NOLINT(google-explicit-constructor)
      : data(tensor.data()),
        dtype(tensor.dtype()),
        sizes(tensor.sizes()),
        strides(tensor.strides()) {}
};

/// One operand of an operation that gantry does not submit itself.
/// @since 0.3
struct Use {
  Region region;          ///< the elements
  bool is_write = false;  ///< false: they are read
};

/// An operand that the operation reads.
[[nodiscard]] inline Use reads(Region region) { return {region, false}; }
/// An operand that the operation writes, or reads and writes.
[[nodiscard]] inline Use writes(Region region) { return {region, true}; }

/// Reports an operation of the program itself, such as a kernel, to the sanitizer. Call it right
/// before submitting the operation to `stream`. Has no effect while the sanitizer is off.
///
///   sanitizer::uses("my_kernel", stream, {sanitizer::reads(a), sanitizer::writes(b)});
///
/// Thread safety: any thread. Throws: RaceError in mode throw_. The sanitizer then does not record
/// the operation.
GANTRY_API void uses(std::string_view operation, const Stream& stream,
                     std::initializer_list<Use> operands);
/// As above.
GANTRY_API void uses(std::string_view operation, const Stream& stream,
                     std::span<const Use> operands);
/// Reports accesses of the calling thread itself, such as through data_ptr(), to the sanitizer.
/// Throws: RaceError in mode throw_.
GANTRY_API void uses_on_host(std::string_view operation, std::initializer_list<Use> operands);
/// As above.
GANTRY_API void uses_on_host(std::string_view operation, std::span<const Use> operands);

/// Reports an order that gantry cannot see: all earlier work of `before` runs before later work of
/// `after`. Example: the program joins external streams by CUDA's own calls.
GANTRY_API void orders(const Stream& before, const Stream& after);

}  // namespace sanitizer
}  // namespace gantry
