#pragma once

#include <gantry/core/export.hpp>

#include <cstdint>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry {

/// Base of every exception that gantry throws.
///
/// The text names the failed operation. It gives the expected and the actual value, and the device
/// or stream concerned. Copying never throws.
/// @code
/// try {
///   (void)(ones({2}) + ones({3}));
/// } catch (const Error& error) {  // here a ShapeError
///   std::cout << error.what();
/// }
/// @endcode
/// @since 0.1
class GANTRY_API Error : public std::runtime_error {
 public:
  /// Makes an error with text `message`; `device` is the device's name ("cuda:1"), empty if none is
  /// involved.
  explicit Error(const std::string& message, std::string_view device = {},
                 std::source_location where = std::source_location::current());

  /// Name of the device concerned, such as "cuda:1"; empty if none is.
  [[nodiscard]] const std::string& device() const noexcept;
  /// Source position that raised the error, as "file:line".
  [[nodiscard]] std::string_view where() const noexcept;

 private:
  struct GANTRY_LOCAL Context;
  std::shared_ptr<const Context> context_;
};

/// A CUDA runtime or driver call failed; on simulated devices, a call that CUDA would refuse.
/// @code
/// try {
///   synchronize();
/// } catch (const CudaError& error) {
///   std::cout << error.device() << ": " << error.what();
/// }
/// @endcode
/// @since 0.1
class GANTRY_API CudaError : public Error {
 public:
  /// `code` is the cudaError_t number, `name` its symbolic name ("cudaErrorInvalidValue").
  CudaError(const std::string& message, int code, std::string_view name,
            std::string_view device = {},
            std::source_location where = std::source_location::current());

  /// The cudaError_t number; simulated devices use the same numbers.
  [[nodiscard]] int code() const noexcept { return code_; }
  /// Symbolic name of the code, such as "cudaErrorIllegalAddress".
  [[nodiscard]] std::string_view name() const noexcept;

 private:
  int code_;
  std::shared_ptr<const std::string> name_;
};

/// Byte counts that explain an OutOfMemoryError. All in bytes.
/// @since 0.1
struct OomReport {
  std::int64_t requested = 0;      ///< request, rounded up as the allocator rounds
  std::int64_t total = 0;          ///< capacity of the device
  std::int64_t free = 0;           ///< free according to the driver
  std::int64_t allocated = 0;      ///< live blocks of this process's allocator
  std::int64_t reserved = 0;       ///< memory that the allocator holds from the driver
  std::int64_t limit = 0;          ///< set_fraction limit, or total
  std::int64_t pending = 0;        ///< in freed blocks that streams still use
  std::int64_t limbo = 0;          ///< in freed blocks that other processes still use
  std::int64_t private_pools = 0;  ///< part of `reserved` in private pools and of graphs
  std::int64_t private_free = 0;   ///< part of `private_pools` that is free there
  std::int64_t stream_free = 0;    ///< in free blocks that only their own streams may reuse yet
  std::int64_t released = 0;       ///< part of `allocated` in pools without physical memory
  std::int64_t largest_free = 0;   ///< size of the largest free block
  /// By stream id: the pending bytes that the stream uses.
  std::vector<std::pair<std::uint64_t, std::int64_t>> pending_by_stream{};
  /// By purpose: bytes that gantry holds past its allocators, largest first. No part of `reserved`.
  std::vector<std::pair<std::string, std::int64_t>> direct_by_purpose{};
  /// By process id: the limbo bytes that the process uses.
  std::vector<std::pair<std::int32_t, std::int64_t>> limbo_by_process{};
  /// The call sites with the most live bytes, largest first. Empty unless record_history() is on.
  std::vector<std::pair<std::string, std::int64_t>> top_call_sites{};
};

/// Device memory is exhausted, and out-of-memory recovery found none.
/// @code
/// try {
///   (void)empty({std::int64_t{1} << 45}, "cuda:0");
/// } catch (const OutOfMemoryError& error) {
///   std::cout << error.breakdown().requested << " bytes";
/// }
/// @endcode
/// @since 0.1
class GANTRY_API OutOfMemoryError : public Error {
 public:
  /// Makes an error with text `message` about the memory of `device`.
  OutOfMemoryError(const std::string& message, const OomReport& breakdown,
                   std::string_view device = {},
                   std::source_location where = std::source_location::current());

  /// The request and the use of the device's memory at that moment.
  [[nodiscard]] const OomReport& breakdown() const noexcept { return breakdown_; }

 private:
  OomReport breakdown_;
};

/// A remote process or rank is gone.
/// @code
/// try {
///   Communicator::world().host_barrier();
/// } catch (const PeerLostError& error) {
///   std::cout << error.what();  // names the rank
/// }
/// @endcode
/// @since 0.1
class GANTRY_API PeerLostError : public Error {
 public:
  /// `rank` is the rank that was lost, -1 if unknown.
  explicit PeerLostError(const std::string& message, int rank = -1, std::string_view device = {},
                         std::source_location where = std::source_location::current());

  /// The rank that was lost, -1 if unknown.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// A deadline passed.
/// @code
/// try {
///   Communicator::world().host_barrier();
/// } catch (const TimeoutError& error) {
///   for (const int rank : error.ranks()) std::cout << rank << " is late\n";
/// }
/// @endcode
/// @since 0.1
class GANTRY_API TimeoutError : public Error {
 public:
  /// Makes an error with text `message` that names no ranks.
  explicit TimeoutError(const std::string& message, std::string_view device = {},
                        std::source_location where = std::source_location::current())
      : TimeoutError(message, std::vector<int>(), device, where) {}
  /// `ranks` are the ranks that did not come.
  TimeoutError(const std::string& message, std::vector<int> ranks, std::string_view device = {},
               std::source_location where = std::source_location::current());

  /// The ranks that did not come; the rank that the others wait for is first. Empty if unknown.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept;

 private:
  std::shared_ptr<const std::vector<int>> ranks_;
};

// The constructor is written out: nvcc 13.0 crashes on an inherited one with this default argument.
#define GANTRY_DECLARE_ERROR(Name)                                              \
  class GANTRY_API Name : public Error {                                        \
   public:                                                                      \
    /** Makes an error with text `message`; `device` as for Error. */           \
    explicit Name(const std::string& message, std::string_view device = {},     \
                  std::source_location where = std::source_location::current()) \
        : Error(message, device, where) {}                                      \
  }

/// An NCCL call failed.
/// @since 0.1
GANTRY_DECLARE_ERROR(NcclError);
/// A cuBLAS or cuBLASLt call failed.
/// @since 0.1
GANTRY_DECLARE_ERROR(CublasError);
/// Operands of one operation live on different devices.
/// @since 0.1
GANTRY_DECLARE_ERROR(DeviceMismatchError);
/// Shapes, strides or dimensions do not fit the operation.
/// @since 0.1
GANTRY_DECLARE_ERROR(ShapeError);
/// An element type does not fit the operation.
/// @since 0.1
GANTRY_DECLARE_ERROR(DTypeError);
/// An index, dimension or slice is out of range.
/// @since 0.1
GANTRY_DECLARE_ERROR(IndexError);
/// An argument is malformed: a device string, an environment variable, an undefined tensor.
/// @since 0.1
GANTRY_DECLARE_ERROR(InvalidArgument);
/// A call is not allowed while a stream is being captured.
/// @since 0.1
GANTRY_DECLARE_ERROR(CaptureError);
/// The platform, build or device cannot do this.
/// @since 0.1
GANTRY_DECLARE_ERROR(NotSupported);
/// The call would use devices, or a StoreClient, of the process that this one was forked from.
/// @since 0.1
GANTRY_DECLARE_ERROR(ForkError);

#undef GANTRY_DECLARE_ERROR

}  // namespace gantry
