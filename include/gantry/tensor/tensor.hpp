#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/dim.hpp>
#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/core/export.hpp>
#include <gantry/core/scalar.hpp>
#include <gantry/device/device.hpp>
#include <gantry/kernels/tensor_ref.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/axes.hpp>
#include <gantry/tensor/generator_ref.hpp>
#include <gantry/tensor/index.hpp>
#include <gantry/tensor/operand.hpp>
#include <gantry/tensor/options.hpp>
#include <gantry/tensor/storage.hpp>

namespace gantry {

class IndexPlan;
struct MinMax;
namespace detail {
class NestedList;
}
template <class T, std::size_t N>
class TensorAccessor;
struct UniqueElements;
struct ValuesAndIndices;

/// A strided array of up to 8 dims on one device: a cheap handle to shared memory. Operations run
/// eagerly.
///
/// A copy of a Tensor shares its memory. Layout and dtype of a tensor never change. A
/// default-constructed or moved-from Tensor is undefined: it allows only defined(), str(),
/// assignment and destruction. All other members throw InvalidArgument.
///
/// Every operation checks its arguments before it changes anything. Members named `op_` work in
/// place and return the tensor. A const Tensor cannot be reassigned, but its elements can be
/// written. Members without documentation here are free functions with the tensor as first
/// argument. The header named above them documents these functions. Negative dimensions (`dim`)
/// count from the end.
///
/// Device/stream: the current stream of the tensor's device, which need not be the current device.
/// The host blocks only for elements on the host (item, to_vector, printing, equal, allclose), for
/// blocking host-device copies, and for results whose shape depends on elements. The latter are
/// nonzero, masked_select, index with a mask, unique, bincount, and others that say so.
/// Thread safety: several threads may call const members of one tensor, unless they write elements.
/// @code
/// const Tensor x = ones({2, 3}, "cuda:0");
/// const Tensor y = (x + 1).matmul(x.t());  // [2, 2]
/// std::cout << y << y[0][1].item<float>();
/// @endcode
/// @since 0.1
class GANTRY_API Tensor {
 public:
  /// An undefined tensor.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  // Assignment to a variable rebinds the handle; assignment to a view, `t[0] = x`, writes elements.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  // NOLINTBEGIN(*-unhandled-self-assignment, *-noexcept-move-constructor): writes elements
  /// copy_(source): `t[0] = ones({4})`. Throws: InvalidArgument for a copy that index() made.
  Tensor& operator=(const Tensor& source) && { return assigned().copy_(source); }
  Tensor& operator=(Tensor&& source) && { return assigned().copy_(source); }
  // NOLINTEND(*-unhandled-self-assignment, *-noexcept-move-constructor)
  /// fill_(value): `t[0] = 3.0`. Throws: InvalidArgument for a copy that index() made.
  Tensor& operator=(const Scalar& value) && { return assigned().fill_(value); }
  /// A view of `storage` from element `offset`. Throws: ShapeError if the layout exceeds the
  /// storage.
  [[nodiscard]] static Tensor from_storage(const Storage& storage, const Shape& sizes,
                                           const Dims& strides, std::int64_t offset, DType dtype);

  // Properties.
  /// False for a default-constructed or moved-from tensor.
  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }
  [[nodiscard]] const Shape& sizes() const;        ///< shape
  [[nodiscard]] std::int64_t size(Dim dim) const;  ///< of one dimension
  /// The strides in elements.
  [[nodiscard]] const Dims& strides() const;
  [[nodiscard]] std::int64_t stride(Dim dim) const;            ///< of one dimension
  [[nodiscard]] int dim() const;                               ///< number of dimensions
  [[nodiscard]] std::int64_t numel() const;                    ///< number of elements
  [[nodiscard]] DType dtype() const;                           ///< element type
  [[nodiscard]] Device device() const;                         ///< with its index
  [[nodiscard]] int ndimension() const { return dim(); }       ///< same as dim
  [[nodiscard]] DType scalar_type() const { return dtype(); }  ///< same as dtype
  /// The index of the GPU; -1 for the CPU.
  [[nodiscard]] int get_device() const { return is_cpu() ? -1 : device().index; }
  [[nodiscard]] std::size_t element_size() const;  ///< bytes per element
  [[nodiscard]] std::size_t nbytes() const;        ///< numel() * element_size()
  [[nodiscard]] const Storage& storage() const;    ///< memory
  /// The offset of the first element in the storage, in elements.
  [[nodiscard]] std::int64_t storage_offset() const;
  /// The address of the first element: a device address for device tensors.
  [[nodiscard]] void* data() const;
  /// data() as a T*. Throws: DTypeError unless T is the element type.
  template <class T>
  [[nodiscard]] T* data_ptr() const {
    return static_cast<T*>(typed_data(dtype_of<std::remove_const_t<T>>));
  }
  [[nodiscard]] void* data_ptr() const { return data(); }
  /// The elements of a CPU tensor by index, `t.accessor<float, 2>()[i][j]` (accessor.hpp). Throws:
  /// DTypeError, ShapeError, InvalidArgument for a device. Precondition: work on them is complete.
  template <class T, std::size_t N>
  [[nodiscard]] TensorAccessor<T, N> accessor() const&;
  template <class T, std::size_t N>
  TensorAccessor<T, N> accessor() && = delete;  // it would outlive the memory
  /// The elements as a std::mdspan or a like type of CCCL or Kokkos, whose layout has the strides:
  /// `t.mdspan<std::mdspan<float, std::dextents<int, 2>, std::layout_stride>>()` (accessor.hpp).
  /// Throws: DTypeError, ShapeError.
  template <class Mdspan>
  [[nodiscard]] Mdspan mdspan() const&;
  template <class Mdspan>
  Mdspan mdspan() && = delete;
  /// True if the elements are dense in row-major order.
  [[nodiscard]] bool is_contiguous() const;
  /// True for f16, bf16, f32, f64, f8e4m3 and f8e5m2.
  [[nodiscard]] bool is_floating_point() const;
  /// True for CPU tensors in page-locked memory.
  [[nodiscard]] bool is_pinned() const;
  [[nodiscard]] bool is_cuda() const { return device().is_cuda(); }  ///< true on a GPU
  [[nodiscard]] bool is_cpu() const { return device().is_cpu(); }    ///< true on the CPU
  /// True if both tensors share one storage.
  [[nodiscard]] bool is_view_of(const Tensor& other) const;
  /// True for copies of one tensor, whose views are others.
  [[nodiscard]] bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }
  /// The dtype, device and pinned memory of this tensor, as options for a factory.
  [[nodiscard]] TensorOptions options() const;
  /// The non-owning view for kernels, valid while the tensor exists.
  [[nodiscard]] TensorRef ref() const;

  // Views share memory and never copy. Only reshape, reshape_as, ravel and flatten copy if no view
  // exists. Every view throws ShapeError or IndexError if the arguments do not fit the shape.
  /// The same elements in another shape. One size may be -1: it is then computed. Throws:
  /// ShapeError if that needs a copy.
  /// Example: `const Tensor flat = x.view({-1});`
  [[nodiscard]] Tensor view(const Shape& sizes) const;
  /// The same bytes as another dtype. The last dim is scaled by the ratio of the element sizes.
  template <std::same_as<DType> T>  // a template, so that view({}) means a shape
  [[nodiscard]] Tensor view(T dtype) const {
    return view_dtype(dtype);
  }
  /// view(sizes) if possible, else a copy in that shape.
  [[nodiscard]] Tensor reshape(const Shape& sizes) const;
  [[nodiscard]] Tensor transpose(Dim dim0, Dim dim1) const;  ///< swaps two dims
  /// The transpose of a matrix. A tensor of fewer dims is unchanged.
  [[nodiscard]] Tensor t() const;
  [[nodiscard]] Tensor permute(const Dims& dims) const;  ///< reorders: dim i is dims[i] of this one
  /// Moves each dim source[i] to position destination[i]; the others keep their order.
  [[nodiscard]] Tensor movedim(const Axes& source, const Axes& destination) const;
  /// The elements start, start + step, … before end. Bounds are clamped, as in Python.
  [[nodiscard]] Tensor slice(Dim dim, std::optional<std::int64_t> start = {},
                             std::optional<std::int64_t> end = {}, std::int64_t step = 1) const;
  /// `length` elements from `start`. Bounds are not clamped.
  [[nodiscard]] Tensor narrow(Dim dim, std::int64_t start, std::int64_t length) const;
  /// The elements at one index of `dim`, without that dim.
  [[nodiscard]] Tensor select(Dim dim, std::int64_t index) const;
  /// Removes dims of size 1: the given ones, or all.
  [[nodiscard]] Tensor squeeze(const Axes& dims = {}) const;
  [[nodiscard]] Tensor unsqueeze(Dim dim) const;  ///< inserts a dim of size 1 at `dim`
  /// Merges the dims start_dim … end_dim into one.
  [[nodiscard]] Tensor flatten(Dim start_dim = 0, Dim end_dim = -1) const;
  /// Splits `dim` into several dims; one size may be -1.
  [[nodiscard]] Tensor unflatten(Dim dim, const Shape& sizes) const;
  /// The tensor broadcast to `sizes`: dims of size 1 and new leading dims repeat, with stride 0. A
  /// size of -1 keeps the tensor's size.
  [[nodiscard]] Tensor expand(const Shape& sizes) const;
  [[nodiscard]] Tensor expand_as(const Tensor& other) const;  ///< expands to the shape of `other`
  /// Same as expand.
  [[nodiscard]] Tensor broadcast_to(const Shape& sizes) const { return expand(sizes); }
  /// The diagonal of the matrices in dim1 and dim2, as a new last dim. It has the elements whose
  /// index in dim2 is their index in dim1 plus `offset`.
  [[nodiscard]] Tensor diagonal(std::int64_t offset = 0, Dim dim1 = 0, Dim dim2 = 1) const;
  /// Windows of `size` elements along `dim`, which start `step` elements apart. A new last dim
  /// holds the window.
  [[nodiscard]] Tensor unfold(Dim dim, std::int64_t size, std::int64_t step) const;
  /// Any layout within the storage. `offset` is a storage offset; default: unchanged.
  [[nodiscard]] Tensor as_strided(const Shape& sizes, const Dims& strides,
                                  std::optional<std::int64_t> offset = {}) const;
  /// Chunks of `size` along `dim`; the last one may be smaller.
  [[nodiscard]] std::vector<Tensor> split(std::int64_t size, Dim dim = 0) const;
  /// Chunks of the given sizes, which add up to the size of `dim`.
  [[nodiscard]] std::vector<Tensor> split(const std::vector<std::int64_t>& sizes,
                                          Dim dim = 0) const;
  /// Exactly `sections` chunks; the first size % sections of them are one longer.
  template <std::integral T>  // a template, so that tensor_split({2}) means indices
  [[nodiscard]] std::vector<Tensor> tensor_split(T sections, Dim dim = 0) const {
    return split_sections(sections, dim);
  }
  /// The chunks between consecutive `indices`.
  [[nodiscard]] std::vector<Tensor> tensor_split(const std::vector<std::int64_t>& indices,
                                                 Dim dim = 0) const;
  /// At most `chunks` chunks of equal size; the last one may be smaller.
  [[nodiscard]] std::vector<Tensor> chunk(int chunks, Dim dim = 0) const;
  /// One tensor for each index of `dim`.
  [[nodiscard]] std::vector<Tensor> unbind(Dim dim = 0) const;
  [[nodiscard]] Tensor view_as(const Tensor& other) const;     ///< view with other's shape
  [[nodiscard]] Tensor reshape_as(const Tensor& other) const;  ///< reshape to other's shape
  [[nodiscard]] Tensor swapaxes(Dim dim0, Dim dim1) const;     ///< same as transpose
  [[nodiscard]] Tensor swapdims(Dim dim0, Dim dim1) const;     ///< same as transpose
  [[nodiscard]] Tensor ravel() const;                          ///< reshape to one dim
  /// A view with the same layout.
  [[nodiscard]] Tensor alias() const;
  [[nodiscard]] Tensor detach() const;  ///< same as alias: tensors have no gradients
  /// This variable becomes a view of itself. Other copies of the tensor keep their shape.
  /// @{
  Tensor& squeeze_(const Axes& dims = {}) & { return *this = squeeze(dims); }
  Tensor& unsqueeze_(Dim dim) & { return *this = unsqueeze(dim); }
  Tensor& transpose_(Dim dim0, Dim dim1) & { return *this = transpose(dim0, dim1); }
  Tensor& t_() & { return *this = t(); }
  /// @}
  /// select(0, i).
  [[nodiscard]] Tensor operator[](std::int64_t i) const { return select(0, i); }
  /// index({i}).
  [[nodiscard]] Tensor operator[](const Tensor& i) const { return index({i}); }
  /// The elements that `indices` select (Index): a copy if an index is a tensor, else a view.
  [[nodiscard]] Tensor index(std::initializer_list<Index> indices) const;
  [[nodiscard]] Tensor index(std::span<const Index> indices) const;
  /// Writes `value`, broadcast, to the elements that index(indices) selects. With `accumulate` it
  /// is added instead.
  Tensor& index_put_(std::initializer_list<Index> indices, const Operand& value,
                     bool accumulate = false) const;
  Tensor& index_put_(std::span<const Index> indices, const Operand& value,
                     bool accumulate = false) const;

  // Copies.
  /// The tensor itself if it is contiguous, else a contiguous copy.
  [[nodiscard]] Tensor contiguous() const;
  /// A contiguous copy.
  /// Example: `const Tensor copy = x.clone();`
  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor flip(const Axes& dims) const;  ///< reverses the order along `dims`
  /// Rotated copy (rearrangements.hpp).
  [[nodiscard]] Tensor rot90(std::int64_t k = 1, const Axes& dims = {0, 1}) const;
  [[nodiscard]] Tensor fliplr() const;  ///< flip along dim 1
  [[nodiscard]] Tensor flipud() const;  ///< flip along dim 0
  /// Shifts the elements by `shifts` along `dims`, with wrap-around. No dims: the flattened tensor.
  [[nodiscard]] Tensor roll(const Axes& shifts, const Axes& dims = {}) const;
  /// Copies of the tensor side by side, `repeats[d]` of them along dim d. More repeats than dims
  /// add leading dims.
  [[nodiscard]] Tensor repeat(const Dims& repeats) const;
  /// repeat with leading repeats of 1 where `repeats` has fewer entries than dims.
  [[nodiscard]] Tensor tile(const Dims& repeats) const;
  /// Repeats each element `repeats` times, along `dim` or in the flattened tensor.
  [[nodiscard]] Tensor repeat_interleave(std::int64_t repeats, std::optional<Dim> dim = {}) const;

  // Transfers and conversions.
  /// The tensor with another dtype or device; the tensor itself if neither changes and `copy` is
  /// false.
  /// Device/stream: a copy between devices is ordered with both devices' current streams. The host
  /// blocks for host-device copies, unless they are non_blocking and the host memory is pinned.
  [[nodiscard]] Tensor to(const TensorOptions& options, ToOptions how = {}) const;
  template <std::same_as<DType> T>
  [[nodiscard]] Tensor to(T dtype, ToOptions how = {}) const {
    return to(TensorOptions{.dtype = dtype}, how);
  }
  /// To the dtype and the device of `other`.
  template <std::same_as<Tensor> T>
  [[nodiscard]] Tensor to(const T& other, ToOptions how = {}) const {
    return to(other.device(), other.dtype(), how);
  }
  [[nodiscard]] Tensor to(Device device, ToOptions how = {}) const;
  [[nodiscard]] Tensor to(Device device, DType dtype, ToOptions how = {}) const {
    return to(TensorOptions{.dtype = dtype, .device = device}, how);
  }
  template <class T, std::same_as<bool> B>  // a dtype or a device
  [[nodiscard]] Tensor to(const T& target, B non_blocking, bool copy = false) const {
    return to(target, ToOptions{.non_blocking = non_blocking, .copy = copy});
  }
  template <std::same_as<bool> B>
  [[nodiscard]] Tensor to(const TensorOptions& options, B non_blocking, bool copy = false) const {
    return to(options, ToOptions{.non_blocking = non_blocking, .copy = copy});
  }
  template <std::same_as<bool> B>
  [[nodiscard]] Tensor to(Device device, DType dtype, B non_blocking, bool copy = false) const {
    return to(device, dtype, ToOptions{.non_blocking = non_blocking, .copy = copy});
  }
  /// to(f16). For f32 and f64 use to(f32) and to(f64): float and double are keywords.
  [[nodiscard]] Tensor half() const { return to(DType::f16); }
  [[nodiscard]] Tensor bfloat16() const { return to(DType::bf16); }                    ///< to(bf16)
  [[nodiscard]] Tensor cuda(int index = -1) const { return to(Device::cuda(index)); }  ///< to a GPU
  [[nodiscard]] Tensor cpu() const { return to(Device::cpu()); }  ///< to the CPU
  /// to(other's dtype and device).
  [[nodiscard]] Tensor type_as(const Tensor& other) const;
  /// Copies `source`, broadcast and converted, from any device. Device/stream: as in to().
  /// Example: `x.copy_(zeros({2, 3}), {.non_blocking = true});`
  Tensor& copy_(const Tensor& source, CopyOptions how = {}) const;
  template <std::same_as<bool> B>
  Tensor& copy_(const Tensor& source, B non_blocking) const {
    return copy_(source, CopyOptions{.non_blocking = non_blocking});
  }
  /// A copy of a CPU tensor in page-locked memory; the tensor itself if it is pinned.
  [[nodiscard]] Tensor pin_memory() const;
  /// Records that work on `stream` uses the memory. After the last tensor is destroyed, the memory
  /// is reused only when the work submitted to `stream` by then has completed.
  /// Example: `x.record_stream(Stream::from_pool("cuda:0"));`
  void record_stream(const Stream& stream) const;
  /// As record_stream(), for the work that is already submitted only. Later work on `stream` does
  /// not delay the reuse.
  void record_use(const Stream& stream) const;

  // Elements on the host. These block.
  /// The only element. Throws: InvalidArgument unless there is exactly one.
  [[nodiscard]] Scalar item() const;
  template <class T>
  [[nodiscard]] T item() const {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {  // more than a Scalar has
      if (defined() && dtype() == DType::u64 && numel() == 1) return to_vector<T>()[0];
    }
    return item().to<T>();
  }
  /// All elements in row-major order, converted to T.
  /// Example: `const std::vector<float> elements = x.to_vector<float>();`
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const {
    const Tensor host = to_host(dtype_of<T>);
    const T* first = static_cast<const T*>(host.data());
    return std::vector<T>(first, first + host.numel());
  }
  /// The text of operator<<.
  [[nodiscard]] std::string str() const;
  /// True if the shapes and all elements are equal. Throws: DeviceMismatchError, DTypeError.
  [[nodiscard]] bool equal(const Tensor& other) const;
  /// True if all elements differ by at most atol + rtol * |other|.
  [[nodiscard]] bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                              bool equal_nan = false) const;
  /// True, element by element, where allclose holds.
  [[nodiscard]] Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                               bool equal_nan = false) const;

  /// Exports a device tensor to other processes on this machine. They see the results of all work
  /// submitted so far. Keep the tensor until they have imported it. Throws: NotSupported if its
  /// memory cannot be shared; see memory::export_ipc().
  [[nodiscard]] IpcHandle ipc_handle() const;
  /// Opens another process's tensor, on the same physical device, without a copy. Throws:
  /// InvalidArgument for a malformed handle; otherwise as memory::import_ipc().
  [[nodiscard]] static Tensor from_ipc(const IpcHandle& handle);

  /// A new tensor. Dtype and device default to those of this tensor. new_tensor() is tensor().
  /// @{
  [[nodiscard]] Tensor new_empty(const Shape& sizes, const TensorOptions& options = {}) const;
  [[nodiscard]] Tensor new_zeros(const Shape& sizes, const TensorOptions& options = {}) const;
  [[nodiscard]] Tensor new_ones(const Shape& sizes, const TensorOptions& options = {}) const;
  [[nodiscard]] Tensor new_full(const Shape& sizes, const Scalar& value,
                                const TensorOptions& options = {}) const;
  template <TensorOption T>
  [[nodiscard]] Tensor new_empty(const Shape& sizes, T option) const {
    return new_empty(sizes, detail::only(option));
  }
  template <TensorOption T>
  [[nodiscard]] Tensor new_zeros(const Shape& sizes, T option) const {
    return new_zeros(sizes, detail::only(option));
  }
  template <TensorOption T>
  [[nodiscard]] Tensor new_ones(const Shape& sizes, T option) const {
    return new_ones(sizes, detail::only(option));
  }
  template <TensorOption T>
  [[nodiscard]] Tensor new_full(const Shape& sizes, const Scalar& value, T option) const {
    return new_full(sizes, value, detail::only(option));
  }
  template <class T, detail::AnyOptions O = TensorOptions>
  [[nodiscard]] Tensor new_tensor(const T& values, O options = {}) const;
  template <class T, detail::AnyOptions O = TensorOptions>
  [[nodiscard]] Tensor new_tensor(std::initializer_list<T> list, O options = {}) const;
  template <class T, detail::AnyOptions O = TensorOptions>
  [[nodiscard]] Tensor new_tensor(std::initializer_list<std::initializer_list<T>> rows,
                                  O options = {}) const;
  template <class T, detail::AnyOptions O = TensorOptions>
  [[nodiscard]] Tensor new_tensor(
      std::initializer_list<std::initializer_list<std::initializer_list<T>>> matrices,
      O options = {}) const;
  template <detail::AnyOptions O = TensorOptions>
  [[nodiscard]] Tensor new_tensor(const detail::NestedList& list, O options = {}) const;
  /// @}

  Tensor& fill_(const Operand& value) const;  ///< sets every element
  Tensor& zero_() const;                      ///< fill_(0)
  /// Fills with normal numbers of `generator`. The default is the device's default generator
  /// (random.hpp).
  Tensor& normal_(double mean = 0, double std = 1, GeneratorRef generator = {}) const;
  /// Fills with uniform numbers on [low, high). DTypes: floating.
  Tensor& uniform_(double low = 0, double high = 1, GeneratorRef generator = {}) const;
  /// Fills with uniform integers on [low, high); the default of `low` is 0. Without bounds, the
  /// range is all non-negative integers that the dtype represents exactly.
  Tensor& random_(std::int64_t low, std::int64_t high, GeneratorRef generator = {}) const;
  Tensor& random_(std::int64_t high, GeneratorRef generator = {}) const {
    return random_(0, high, generator);
  }
  Tensor& random_(GeneratorRef generator = {}) const;
  /// Fills with 1 of the given probability, else 0.
  Tensor& bernoulli_(double probability = 0.5, GeneratorRef generator = {}) const;
  /// Exponential numbers of rate `lambda` > 0. DTypes: floating.
  Tensor& exponential_(double lambda = 1, GeneratorRef generator = {}) const;
  /// Cauchy numbers of width `sigma` > 0. DTypes: floating.
  Tensor& cauchy_(double median = 0, double sigma = 1, GeneratorRef generator = {}) const;
  /// e to the power of normal numbers of standard deviation `std` > 0. DTypes: floating.
  Tensor& log_normal_(double mean = 1, double std = 2, GeneratorRef generator = {}) const;
  /// Numbers of trials up to the first success, which has probability `p` in (0, 1). DTypes: all
  /// but bool; integers saturate.
  Tensor& geometric_(double p, GeneratorRef generator = {}) const;
  /// Indices drawn with these weights (distributions.hpp).
  [[nodiscard]] Tensor multinomial(std::int64_t samples, bool replacement = false,
                                   GeneratorRef generator = {}) const;

  // Elementwise (elementwise.hpp).
// clang-format off
#define GANTRY_UNARY_NAMES(f) \
  f(neg) f(abs) f(sign) f(square) f(reciprocal) f(sqrt) f(rsqrt) f(exp) f(expm1) f(log) f(log2) \
  f(log10) f(log1p) f(sin) f(cos) f(tan) f(asin) f(acos) f(atan) f(sinh) f(cosh) f(tanh) \
  f(sigmoid) f(relu) f(gelu) f(silu) f(erf) f(floor) f(ceil) f(round) f(trunc) f(frac) \
  f(bitwise_not) f(logical_not) \
  f(asinh) f(acosh) f(atanh) f(erfc) f(exp2) f(sinc) f(deg2rad) f(rad2deg) f(absolute) f(sgn) f(fix)
#define GANTRY_BINARY_NAMES(f) \
  f(mul) f(floor_divide) f(remainder) f(fmod) f(pow) f(atan2) f(minimum) f(maximum) \
  f(bitwise_and) f(bitwise_or) f(bitwise_xor) f(bitwise_left_shift) f(bitwise_right_shift) \
  f(logical_and) f(logical_or) f(logical_xor) f(eq) f(ne) f(lt) f(le) f(gt) f(ge) \
  f(hypot) f(xlogy) f(copysign) f(nextafter) f(ldexp) f(float_power) f(true_divide) f(clamp_min) f(clamp_max)
// clang-format on
// Of each name op, the members op and op_.
#define GANTRY_UNARY(op)           \
  [[nodiscard]] Tensor op() const; \
  Tensor& op##_() const;
#define GANTRY_BINARY(op)                              \
  [[nodiscard]] Tensor op(const Operand& other) const; \
  Tensor& op##_(const Operand& other) const;
  GANTRY_UNARY_NAMES(GANTRY_UNARY)
  GANTRY_BINARY_NAMES(GANTRY_BINARY)
#undef GANTRY_UNARY
#undef GANTRY_BINARY
#undef GANTRY_UNARY_NAMES
#undef GANTRY_BINARY_NAMES
  [[nodiscard]] Tensor isnan() const;
  [[nodiscard]] Tensor isinf() const;
  [[nodiscard]] Tensor isfinite() const;
  [[nodiscard]] Tensor signbit() const;
  [[nodiscard]] Tensor isposinf() const;
  [[nodiscard]] Tensor isneginf() const;
  [[nodiscard]] Tensor positive() const;
  [[nodiscard]] Tensor logaddexp(const Operand& other) const;
  [[nodiscard]] Tensor logaddexp2(const Operand& other) const;
  [[nodiscard]] Tensor rsub(const Operand& other, const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor heaviside(const Tensor& values) const;
  Tensor& heaviside_(const Tensor& values) const;
  [[nodiscard]] Tensor add(const Operand& other, const Scalar& alpha = 1) const;
  Tensor& add_(const Operand& other, const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor sub(const Operand& other, const Scalar& alpha = 1) const;
  Tensor& sub_(const Operand& other, const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor div(const Operand& other, RoundingMode mode = RoundingMode::none) const;
  [[nodiscard]] Tensor div(const Operand& other, std::string_view mode) const;
  Tensor& div_(const Operand& other, RoundingMode mode = RoundingMode::none) const;
  Tensor& div_(const Operand& other, std::string_view mode) const;
  [[nodiscard]] Tensor clamp(std::optional<Operand> low, std::optional<Operand> high = {}) const;
  Tensor& clamp_(std::optional<Operand> low, std::optional<Operand> high = {}) const;
  [[nodiscard]] Tensor lerp(const Tensor& end, const Operand& weight) const;
  Tensor& lerp_(const Tensor& end, const Operand& weight) const;
  [[nodiscard]] Tensor addcmul(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  Tensor& addcmul_(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  [[nodiscard]] Tensor addcdiv(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value = 1) const;
  [[nodiscard]] Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {},
                                  std::optional<double> neginf = {}) const;
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {},
                      std::optional<double> neginf = {}) const;
  [[nodiscard]] Tensor where(const Tensor& condition, const Operand& other) const;
  [[nodiscard]] Tensor masked_fill(const Tensor& mask, const Operand& value) const;
  Tensor& masked_fill_(const Tensor& mask, const Operand& value) const;
  [[nodiscard]] Tensor operator-() const { return neg(); }
  Tensor& operator+=(const Operand& other) { return add_(other); }
  Tensor& operator-=(const Operand& other) { return sub_(other); }
  Tensor& operator*=(const Operand& other) { return mul_(other); }
  Tensor& operator/=(const Operand& other) { return div_(other); }
  Tensor& operator%=(const Operand& other) { return remainder_(other); }
  Tensor& operator&=(const Operand& other) { return bitwise_and_(other); }
  Tensor& operator|=(const Operand& other) { return bitwise_or_(other); }
  Tensor& operator^=(const Operand& other) { return bitwise_xor_(other); }
  Tensor& operator<<=(const Operand& other) { return bitwise_left_shift_(other); }
  Tensor& operator>>=(const Operand& other) { return bitwise_right_shift_(other); }

  // Reductions (reductions.hpp).
  [[nodiscard]] Tensor sum(const Axes& dims = {}, bool keepdim = false,
                           std::optional<DType> dtype = {}) const;
  template <std::same_as<DType> T>
  [[nodiscard]] Tensor sum(T dtype) const {
    return sum(Axes(), false, dtype);
  }
  [[nodiscard]] Tensor mean(const Axes& dims = {}, bool keepdim = false,
                            std::optional<DType> dtype = {}) const;
  template <std::same_as<DType> T>
  [[nodiscard]] Tensor mean(T dtype) const {
    return mean(Axes(), false, dtype);
  }
  [[nodiscard]] Tensor prod(const Axes& dims = {}, bool keepdim = false,
                            std::optional<DType> dtype = {}) const;
  template <std::same_as<DType> T>
  [[nodiscard]] Tensor prod(T dtype) const {
    return prod(Axes(), false, dtype);
  }
  [[nodiscard]] Tensor amax(const Axes& dims = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor amin(const Axes& dims = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor max() const;
  [[nodiscard]] ValuesAndIndices max(Dim dim, bool keepdim = false) const;
  [[nodiscard]] Tensor max(const Tensor& other) const;  ///< maximum(other)
  [[nodiscard]] Tensor min() const;
  [[nodiscard]] ValuesAndIndices min(Dim dim, bool keepdim = false) const;
  [[nodiscard]] Tensor min(const Tensor& other) const;  ///< minimum(other)
  [[nodiscard]] Tensor argmax(std::optional<Dim> dim = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor argmin(std::optional<Dim> dim = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor any(const Axes& dims = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor all(const Axes& dims = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor count_nonzero(const Axes& dims = {}) const;
  [[nodiscard]] Tensor norm(double p = 2, const Axes& dims = {}, bool keepdim = false) const;
  [[nodiscard]] Tensor var(const VarianceOptions& options = {}) const;
  template <class T = Axes>  // a template, so that var({.correction = 0}) means options
  [[nodiscard]] Tensor var(const std::type_identity_t<T>& dims, double correction = 1,
                           bool keepdim = false) const {
    return var(VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
  }
  template <std::same_as<bool> T>
  [[nodiscard]] Tensor var(T unbiased) const {
    return var(VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
  }
  [[nodiscard]] Tensor std(const VarianceOptions& options = {}) const;
  template <class T = Axes>  // a template, so that std({.correction = 0}) means options
  [[nodiscard]] Tensor std(const std::type_identity_t<T>& dims, double correction = 1,
                           bool keepdim = false) const {
    return std(VarianceOptions{.dims = dims, .correction = correction, .keepdim = keepdim});
  }
  template <std::same_as<bool> T>
  [[nodiscard]] Tensor std(T unbiased) const {
    return std(VarianceOptions{.correction = unbiased ? 1.0 : 0.0});
  }
  [[nodiscard]] Tensor logsumexp(const Axes& dims, bool keepdim = false) const;
  // Statistics (statistics.hpp).
  [[nodiscard]] MinMax aminmax(std::optional<Dim> dim = {}, bool keepdim = false) const;
  /// Sum of the diagonal of a matrix. There is no free function, because gantry::trace is a
  /// namespace. Shapes: [m, n] → []. DTypes: as sum. Throws: ShapeError.
  [[nodiscard]] Tensor trace() const;
  [[nodiscard]] Tensor nansum(const Axes& dims = {}, bool keepdim = false,
                              std::optional<DType> dtype = {}) const;
  [[nodiscard]] Tensor nanmean(const Axes& dims = {}, bool keepdim = false,
                               std::optional<DType> dtype = {}) const;
  [[nodiscard]] Tensor dist(const Tensor& other, double p = 2) const;
  [[nodiscard]] Tensor cumsum(Dim dim, std::optional<DType> dtype = {}) const;
  [[nodiscard]] Tensor cumprod(Dim dim, std::optional<DType> dtype = {}) const;
  [[nodiscard]] Tensor softmax(Dim dim, std::optional<DType> dtype = {}) const;
  [[nodiscard]] Tensor log_softmax(Dim dim, std::optional<DType> dtype = {}) const;

  // Linear algebra (linalg.hpp).
  [[nodiscard]] Tensor matmul(const Tensor& other) const;
  [[nodiscard]] Tensor mm(const Tensor& other) const;
  [[nodiscard]] Tensor bmm(const Tensor& other) const;
  [[nodiscard]] Tensor mv(const Tensor& vector) const;
  [[nodiscard]] Tensor dot(const Tensor& other) const;
  [[nodiscard]] Tensor outer(const Tensor& other) const;
  [[nodiscard]] Tensor addmm(const Tensor& mat1, const Tensor& mat2, const Scalar& beta = 1,
                             const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor addmv(const Tensor& matrix, const Tensor& vector, const Scalar& beta = 1,
                             const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor baddbmm(const Tensor& batch1, const Tensor& batch2, const Scalar& beta = 1,
                               const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor inner(const Tensor& other) const;
  [[nodiscard]] Tensor vdot(const Tensor& other) const;
  [[nodiscard]] Tensor kron(const Tensor& other) const;
  [[nodiscard]] Tensor addr(const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                            const Scalar& alpha = 1) const;
  Tensor& addr_(const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                const Scalar& alpha = 1) const;
  Tensor& addmm_(const Tensor& mat1, const Tensor& mat2, const Scalar& beta = 1,
                 const Scalar& alpha = 1) const;
  Tensor& addmv_(const Tensor& matrix, const Tensor& vector, const Scalar& beta = 1,
                 const Scalar& alpha = 1) const;
  Tensor& baddbmm_(const Tensor& batch1, const Tensor& batch2, const Scalar& beta = 1,
                   const Scalar& alpha = 1) const;

  // Indexing by tensors (indexing.hpp).
  [[nodiscard]] Tensor index_select(Dim dim, const Tensor& index) const;
  [[nodiscard]] Tensor gather(Dim dim, const Tensor& index) const;
  [[nodiscard]] Tensor scatter(Dim dim, const Tensor& index, const Operand& source) const;
  Tensor& scatter_(Dim dim, const Tensor& index, const Operand& source) const;
  Tensor& scatter_add_(Dim dim, const Tensor& index, const Tensor& source) const;
  [[nodiscard]] Tensor index_put(std::initializer_list<Index> indices, const Operand& value,
                                 bool accumulate = false) const;
  [[nodiscard]] Tensor take(const Tensor& index) const;
  [[nodiscard]] Tensor take_along_dim(const Tensor& indices, std::optional<Dim> dim = {}) const;
  [[nodiscard]] Tensor put(const Tensor& index, const Tensor& source,
                           bool accumulate = false) const;
  Tensor& put_(const Tensor& index, const Tensor& source, bool accumulate = false) const;
  [[nodiscard]] Tensor scatter(Dim dim, const Tensor& index, const Operand& source,
                               std::string_view reduce) const;
  Tensor& scatter_(Dim dim, const Tensor& index, const Operand& source,
                   std::string_view reduce) const;
  [[nodiscard]] Tensor scatter_add(Dim dim, const Tensor& index, const Tensor& source) const;
  [[nodiscard]] Tensor scatter_reduce(Dim dim, const Tensor& index, const Tensor& source,
                                      std::string_view reduce, bool include_self = true) const;
  Tensor& scatter_reduce_(Dim dim, const Tensor& index, const Tensor& source,
                          std::string_view reduce, bool include_self = true) const;
  [[nodiscard]] Tensor index_add(Dim dim, const Tensor& index, const Tensor& source,
                                 const Scalar& alpha = 1) const;
  Tensor& index_add_(Dim dim, const Tensor& index, const Tensor& source,
                     const Scalar& alpha = 1) const;
  [[nodiscard]] Tensor index_copy(Dim dim, const Tensor& index, const Tensor& source) const;
  Tensor& index_copy_(Dim dim, const Tensor& index, const Tensor& source) const;
  [[nodiscard]] Tensor index_fill(Dim dim, const Tensor& index, const Operand& value) const;
  Tensor& index_fill_(Dim dim, const Tensor& index, const Operand& value) const;
  [[nodiscard]] Tensor index_reduce(Dim dim, const Tensor& index, const Tensor& source,
                                    std::string_view reduce, bool include_self = true) const;
  Tensor& index_reduce_(Dim dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                        bool include_self = true) const;
  [[nodiscard]] Tensor nonzero() const;
  [[nodiscard]] std::vector<Tensor> nonzero_numpy() const;
  [[nodiscard]] Tensor argwhere() const;
  [[nodiscard]] Tensor masked_select(const Tensor& mask) const;
  [[nodiscard]] Tensor masked_scatter(const Tensor& mask, const Tensor& source) const;
  Tensor& masked_scatter_(const Tensor& mask, const Tensor& source) const;

  // Sorting (sorting.hpp), searches and counts (binning.hpp), running extrema (cumulative.hpp).
  [[nodiscard]] ValuesAndIndices sort(Dim dim = -1, bool descending = false,
                                      bool stable = false) const;
  [[nodiscard]] Tensor argsort(Dim dim = -1, bool descending = false, bool stable = false) const;
  [[nodiscard]] Tensor msort() const;
  [[nodiscard]] ValuesAndIndices topk(std::int64_t k, Dim dim = -1, bool largest = true,
                                      bool sorted = true) const;
  [[nodiscard]] ValuesAndIndices kthvalue(std::int64_t k, Dim dim = -1, bool keepdim = false) const;
  [[nodiscard]] Tensor median() const;
  [[nodiscard]] ValuesAndIndices median(Dim dim, bool keepdim = false) const;
  [[nodiscard]] Tensor nanmedian() const;
  [[nodiscard]] ValuesAndIndices nanmedian(Dim dim, bool keepdim = false) const;
  [[nodiscard]] ValuesAndIndices mode(Dim dim = -1, bool keepdim = false) const;
  [[nodiscard]] UniqueElements unique(bool sorted = true, bool return_inverse = false,
                                      bool return_counts = false,
                                      std::optional<Dim> dim = {}) const;
  [[nodiscard]] UniqueElements unique_consecutive(bool return_inverse = false,
                                                  bool return_counts = false,
                                                  std::optional<Dim> dim = {}) const;
  [[nodiscard]] Tensor isin(const Operand& test_elements, bool assume_unique = false,
                            bool invert = false) const;
  [[nodiscard]] Tensor bincount(const std::optional<Tensor>& weights = {},
                                std::int64_t minlength = 0) const;
  [[nodiscard]] Tensor histc(std::int64_t bins = 100, const Scalar& min = 0,
                             const Scalar& max = 0) const;
  [[nodiscard]] ValuesAndIndices cummax(Dim dim) const;
  [[nodiscard]] ValuesAndIndices cummin(Dim dim) const;
  [[nodiscard]] Tensor logcumsumexp(Dim dim) const;
  [[nodiscard]] Tensor diff(std::int64_t n = 1, Dim dim = -1,
                            const std::optional<Tensor>& prepend = {},
                            const std::optional<Tensor>& append = {}) const;

  // Triangles of the last two dims (factories.hpp).
  [[nodiscard]] Tensor tril(std::int64_t diagonal = 0) const;
  [[nodiscard]] Tensor triu(std::int64_t diagonal = 0) const;

 private:
  struct GANTRY_LOCAL Impl;
  explicit Tensor(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  // Throws InvalidArgument for an undefined tensor.
  [[nodiscard]] const Impl& impl() const;
  // The result of in-place members, which are const: they write elements, never the handle.
  [[nodiscard]] Tensor& handle() const { return const_cast<Tensor&>(*this); }
  [[nodiscard]] void* typed_data(DType dtype) const;
  [[nodiscard]] Tensor view_dtype(DType dtype) const;
  // A contiguous CPU copy, complete on return.
  [[nodiscard]] Tensor to_host(DType dtype) const;
  [[nodiscard]] std::vector<Tensor> split_sections(std::int64_t sections, Dim dim) const;
  // copy_ and fill_ with `op` as the operation's name in errors.
  Tensor& copy_as(std::string_view op, const Tensor& source, CopyOptions how = {}) const;
  Tensor& fill_as(std::string_view op, const Operand& value) const;
  friend IndexPlan;  // runs copy_as and fill_as
  // The target of an assignment to an rvalue. Throws InvalidArgument for a copy that index() made.
  [[nodiscard]] const Tensor& assigned() const;
  // An unchecked view of the same storage.
  [[nodiscard]] Tensor restride(const Shape& sizes, const Dims& strides, std::int64_t offset) const;

  std::shared_ptr<const Impl> impl_;
};

}  // namespace gantry
