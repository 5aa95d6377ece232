#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/index.hpp>
#include <gantry/tensor/operand.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The layout of a view of a storage, in elements. As a plan, it is a read that copies nothing.
/// @since 0.3
struct ViewPlan {
  Shape sizes;              ///< shape
  Dims strides;             ///< strides
  std::int64_t offset = 0;  ///< offset of the first element in the storage
};

/// One tensor or bool of an index list, and the dims of a ViewPlan that it indexes.
/// @since 0.3
struct IndexedDims {
  Tensor index;            ///< positions, or a mask; undefined for a bool
  int dim = 0;             ///< the first indexed dim of the view
  int count = 1;           ///< number of indexed dims: those of a mask, 0 for a bool, else 1
  int source_dim = 0;      ///< the dim of the tensor that errors name
  bool is_mask = false;    ///< selects where `index` is not zero
  bool is_moved = false;   ///< `index` is a copy of a CPU tensor, on the device
  std::int64_t found = 0;  ///< elements that a mask selects; of a bool 1 or 0
  Tensor selection;        ///< of a mask: its elements as bits, and the counts of tiles of them
};

/// A read that copies the elements at the positions of index tensors.
/// @since 0.3
struct GatherPlan {
  ViewPlan view;                     ///< selection of the other entries of the list
  std::vector<IndexedDims> indices;  ///< the tensors, in increasing order of their dims
  Shape index_sizes;                 ///< the shape to which they are broadcast
  int index_dim = 0;                 ///< first dim of index_sizes in the result
  Shape sizes;                       ///< shape of the result
};

/// A write to the positions of index tensors.
/// @since 0.3
struct ScatterPlan {
  GatherPlan places;        ///< the elements that are written
  bool accumulate = false;  ///< adds, in the order of the value's elements
};

/// A write of a tensor to a view.
/// @since 0.3
struct CopyPlan {
  ViewPlan view;            ///< the elements that are written
  bool accumulate = false;  ///< adds
};

/// A write of a number to a view, or to those of its elements that a mask selects.
/// @since 0.3
struct FillPlan {
  ViewPlan view;            ///< the elements that are written
  bool accumulate = false;  ///< adds; never with a mask
  Tensor mask;              ///< broadcasts to the view; undefined: all elements
};

/// The parsed and checked work of one index() or index_put_() with one tensor and one index list.
/// Immutable.
///
/// A read is a ViewPlan if the list has no tensor, else a GatherPlan. A write is a CopyPlan or, for
/// a number or a 0-dim tensor, a FillPlan; with index tensors it is a ScatterPlan. One mask and a
/// number are a FillPlan, too. The plan keeps the tensors of its arguments. It can run any number
/// of times. Each run uses the present contents of the tensors, except that a mask must keep its
/// contents.
///
/// Device/stream: making a plan submits work only for masks: the current stream counts their
/// elements, and the host waits. Running a plan submits to the tensor's device.
/// Thread safety: const members may run in several threads.
/// @code
/// const Tensor x = zeros({4, 5});
/// const IndexPlan plan = IndexPlan::for_read(x, std::vector<Index>{Slice(1, 3), 2});
/// @endcode
/// @since 0.3
class GANTRY_API IndexPlan {
 public:
  /// Every kind of plan.
  using Kind = std::variant<ViewPlan, GatherPlan, ScatterPlan, CopyPlan, FillPlan>;

  /// Plans self.index(indices). Throws: IndexError, DeviceMismatchError.
  [[nodiscard]] static IndexPlan for_read(const Tensor& self, std::span<const Index> indices);
  /// Plans self.index_put_(indices, value, accumulate). Throws: IndexError, ShapeError, DTypeError,
  /// DeviceMismatchError; InvalidArgument for memory that overlaps.
  [[nodiscard]] static IndexPlan for_write(const Tensor& self, std::span<const Index> indices,
                                           const Operand& value, bool accumulate = false);

  /// The plan.
  [[nodiscard]] const Kind& kind() const noexcept { return kind_; }
  /// "View", "Gather", "Scatter", "Copy" or "Fill".
  [[nodiscard]] std::string_view name() const noexcept;
  /// The shape of the selected elements.
  [[nodiscard]] const Shape& sizes() const noexcept;
  /// Bytes that are read and written: the elements, the index tensors and the temporaries.
  [[nodiscard]] std::int64_t bytes_moved() const noexcept { return moved_; }
  /// Bytes of temporary tensors, without the result. A GPU's scratch memory for sorting is not
  /// among them.
  [[nodiscard]] std::int64_t temporary_bytes() const noexcept { return temporary_; }
  /// The plan in a few lines, as explain() prints it.
  [[nodiscard]] std::string str() const;

  /// Runs a plan of for_read(). Throws: InvalidArgument for a plan of for_write().
  [[nodiscard]] Tensor read() const;
  /// Runs a plan of for_write() with a value that broadcasts to sizes(). Throws: InvalidArgument
  /// for a plan of for_read(); otherwise as for_write().
  void write(const Operand& value) const;

 private:
  friend struct CopyWriter;  // writes to a copy of the tensor
  GANTRY_LOCAL static IndexPlan plan_write(const Tensor& self, const ViewPlan& layout,
                                           std::span<const Index> indices, const Operand& value,
                                           bool accumulate, bool is_copy);
  GANTRY_LOCAL IndexPlan(const Tensor& self, Kind kind) : self_(self), kind_(std::move(kind)) {}
  [[nodiscard]] GANTRY_LOCAL Tensor viewed(const ViewPlan& view) const;
  GANTRY_LOCAL void write_view(const ViewPlan& view, const Operand& value, bool accumulate) const;
  GANTRY_LOCAL void write_masked(const FillPlan& plan, const Operand& value) const;

  Tensor self_;
  Kind kind_;
  std::int64_t moved_ = 0;
  std::int64_t temporary_ = 0;
};

/// The text of the plan of self.index(indices): its kind, the shape, the bytes that it moves and
/// the bytes of its temporaries.
/// @since 0.3
[[nodiscard]] GANTRY_API std::string explain(const Tensor& self,
                                             std::initializer_list<Index> indices);
[[nodiscard]] GANTRY_API std::string explain(const Tensor& self, std::span<const Index> indices);
/// The text of the plan of self.index_put_(indices, value, accumulate). Writes nothing.
/// @since 0.3
[[nodiscard]] GANTRY_API std::string explain_put(const Tensor& self,
                                                 std::initializer_list<Index> indices,
                                                 const Operand& value, bool accumulate = false);
[[nodiscard]] GANTRY_API std::string explain_put(const Tensor& self, std::span<const Index> indices,
                                                 const Operand& value, bool accumulate = false);

}  // namespace gantry
