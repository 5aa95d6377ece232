#include "compat/nccl/operation.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/tensor/factories.hpp>

#include "compat/nccl/memory.hpp"
#include "compat/nccl/types/data_type.hpp"

namespace gantry::nccl_api {

namespace {

// From here on gantry asks whether peers can access an array. Memory of ncclMemAlloc() is virtual
// memory, of which only its own tensor knows that they can.
constexpr std::size_t kAskedBytes = std::size_t{1} << 20;

// An array of a call: its address, and the number of its elements.
struct Place {
  const void* data;
  std::size_t count;
};

// The arrays that a call reads and writes on this rank; others have no elements.
std::array<Place, 2> places_of(const Rank& rank, const Operation& call) {
  const std::size_t count = call.count;
  const std::size_t all = count * static_cast<std::size_t>(rank.size);
  const bool is_root = rank.rank == call.peer;
  switch (call.kind) {
    case OperationKind::all_reduce:
      return {{{call.send, count}, {call.recv, count}}};
    case OperationKind::reduce:
      return {{{call.send, count}, {call.recv, is_root ? count : 0}}};
    case OperationKind::broadcast:
      return {{{call.send, is_root ? count : 0}, {call.recv, count}}};
    case OperationKind::all_gather:
      return {{{call.send, count}, {call.recv, all}}};
    case OperationKind::reduce_scatter:
      return {{{call.send, all}, {call.recv, count}}};
    case OperationKind::gather:
      return {{{call.send, count}, {call.recv, is_root ? all : 0}}};
    case OperationKind::scatter:
      return {{{call.send, is_root ? all : 0}, {call.recv, count}}};
    case OperationKind::all_to_all:
      return {{{call.send, all}, {call.recv, all}}};
    case OperationKind::send:
      return {{{call.send, count}, {nullptr, 0}}};
    case OperationKind::recv:
      return {{{nullptr, 0}, {call.recv, count}}};
  }
  __builtin_unreachable();
}

// The tensors of the arrays that this thread's last calls had. A program calls with the same arrays
// again and again, and a new tensor costs a query of the driver. An array that is freed meanwhile
// is not found out, as in NCCL.
class RecentArrays {
 public:
  static RecentArrays& mine() {
    thread_local RecentArrays arrays;
    return arrays;
  }

  // Throws: InvalidArgument, for an array that it does not know, unless it is memory of the device
  // or page-locked memory of the host.
  const Tensor& of(const void* data, std::int64_t count, DType dtype, Device device) {
    for (const Tensor& known : tensors_) {
      if (known.defined() && known.data() == data && known.numel() == count &&
          known.dtype() == dtype && (known.device() == device || known.device().is_cpu())) {
        return known;
      }
    }
    Tensor& oldest = tensors_[next_];
    oldest = made(const_cast<void*>(data), count, dtype, device);
    next_ = (next_ + 1) % tensors_.size();
    return oldest;
  }

 private:
  static Tensor made(void* data, std::int64_t count, DType dtype, Device device) {
    try {
      return from_blob(data, {count}, {.dtype = dtype, .device = device});
    } catch (const InvalidArgument&) {
      if (!memory::is_pinned(data)) throw;
      return from_blob(data, {count}, {.dtype = dtype});
    }
  }

  std::array<Tensor, 16> tensors_;
  std::size_t next_ = 0;
};

}  // namespace

Operation checked(const Rank& rank, Operation operation) {
  const DataType& type = data_type(operation.type);
  operation.factor = rank.find_operator(operation.op);
  if (operation.factor && operation.factor->type != operation.type) {
    throw InvalidArgument(std::string("expected elements of the operator's type ") +
                          data_type(operation.factor->type).name + ", but got " + type.name);
  }
  const bool has_peer = operation.kind == OperationKind::reduce ||
                        operation.kind == OperationKind::broadcast ||
                        operation.kind == OperationKind::gather ||
                        operation.kind == OperationKind::scatter || operation.is_message();
  if (has_peer && (operation.peer < 0 || operation.peer >= rank.size)) {
    throw InvalidArgument("expected a rank from 0 to " + std::to_string(rank.size - 1) +
                          ", but got " + std::to_string(operation.peer));
  }
  const std::size_t most = std::numeric_limits<std::int64_t>::max() / sizeof(double);
  if (operation.count > most / static_cast<std::size_t>(rank.size)) {
    throw InvalidArgument("expected a number of elements that memory can have, but got " +
                          std::to_string(operation.count));
  }
  for (const Place& place : places_of(rank, operation)) {
    if (place.data != nullptr || place.count == 0) continue;
    throw InvalidArgument("expected memory for " + std::to_string(place.count) +
                          " elements, but got null");
  }
  return operation;
}

Arrays arrays_of(const Rank& rank, const Operation& operation) {
  const TensorOptions options{.dtype = data_type(operation.type).moved_as, .device = rank.device};
  const auto array = [&](const Place& place) {
    if (place.count == 0) return Tensor();
    const std::size_t bytes = place.count * element_size(options.dtype.value_or(DType::u8));
    if (bytes >= kAskedBytes) {
      if (const std::optional<Tensor> memory = allocation_of(place.data, bytes)) {
        const std::ptrdiff_t begin = static_cast<const std::byte*>(place.data) -
                                     static_cast<const std::byte*>(memory->data());
        return memory->narrow(0, begin, static_cast<std::int64_t>(bytes)).view(*options.dtype);
      }
    }
    return RecentArrays::mine().of(place.data, static_cast<std::int64_t>(place.count),
                                   *options.dtype, rank.device);
  };
  const auto [send, recv] = places_of(rank, operation);
  Arrays arrays{.send = array(send), .recv = {}};
  const bool is_in_place = send.data == recv.data && send.count == recv.count;
  arrays.recv = is_in_place ? arrays.send : array(recv);
  return arrays;
}

}  // namespace gantry::nccl_api
