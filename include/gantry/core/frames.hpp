// Call stacks with the names of their functions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry {

/// One function of a call stack.
/// @since 0.1
struct Frame {
  std::string filename;  ///< source file; the module's file where there is no debug information
  int line = 0;          ///< 0: unknown
  std::string name;      ///< the function, demangled
  /// True for code of gantry or of the C++ library.
  bool is_internal = false;

  bool operator==(const Frame&) const = default;
};

/// A call stack, innermost function first. Copies share the frames, so the entries of a trace cost
/// no more than their distinct stacks.
/// @code
/// memory::record_history();
/// const Tensor x = ones({4}, "cuda:0");
/// const memory::Snapshot now = memory::snapshot();
/// const Frames& frames = now.device_traces.at(0).back().frames;
/// if (!frames.empty()) std::cout << frames.call_site()->name;
/// @endcode
/// @since 0.1
class GANTRY_API Frames {
 public:
  Frames() = default;
  /// A call stack of the given frames, innermost first.
  Frames(std::vector<Frame> frames)  // NOLINT(google-explicit-constructor): a list of frames
      : frames_(frames.empty() ? nullptr
                               : std::make_shared<const std::vector<Frame>>(std::move(frames))) {}

  /// Number of frames.
  [[nodiscard]] std::size_t size() const noexcept { return list().size(); }
  /// True if there is no frame.
  [[nodiscard]] bool empty() const noexcept { return list().empty(); }
  /// Frame `i`, which is not checked.
  [[nodiscard]] const Frame& operator[](std::size_t i) const noexcept { return list()[i]; }
  /// The innermost frame. Precondition: not empty.
  [[nodiscard]] const Frame& front() const noexcept { return list().front(); }
  /// The innermost frame that is not internal; the innermost one if all are internal. nullptr for
  /// an empty list.
  [[nodiscard]] const Frame* call_site() const noexcept;
  /// Iterator to the innermost frame.
  [[nodiscard]] auto begin() const noexcept { return list().begin(); }
  /// Iterator behind the outermost frame.
  [[nodiscard]] auto end() const noexcept { return list().end(); }
  /// A key that is equal for copies of one list; nullptr for an empty one.
  [[nodiscard]] const void* identity() const noexcept { return frames_.get(); }

  /// True if all frames are equal.
  bool operator==(const Frames& other) const {
    return frames_ == other.frames_ || list() == other.list();
  }

 private:
  [[nodiscard]] const std::vector<Frame>& list() const {
    static const auto& kEmpty = *new std::vector<Frame>();
    return frames_ != nullptr ? *frames_ : kEmpty;
  }

  std::shared_ptr<const std::vector<Frame>> frames_;
};

}  // namespace gantry
