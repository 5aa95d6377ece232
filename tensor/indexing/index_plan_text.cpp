// What an index plan tells of itself.
#include <fmt/format.h>

#include <array>

#include <gantry/tensor/index_plan.hpp>

#include "tensor/indexing/index_checks.hpp"

namespace gantry {

namespace {

const char* kind_name(const IndexPlan::Kind& kind) {
  static constexpr std::array<const char*, 5> kNames = {"View", "Gather", "Scatter", "Copy",
                                                        "Fill"};
  return kNames[kind.index()];
}

struct SizesOf {
  const Shape& operator()(const ViewPlan& plan) const { return plan.sizes; }
  const Shape& operator()(const GatherPlan& plan) const { return plan.sizes; }
  const Shape& operator()(const ScatterPlan& plan) const { return plan.places.sizes; }
  const Shape& operator()(const CopyPlan& plan) const { return plan.view.sizes; }
  const Shape& operator()(const FillPlan& plan) const { return plan.view.sizes; }
};

// The lines of a plan's text that its kind adds.
struct DetailsOf {
  std::string operator()(const ViewPlan& plan) const {
    return fmt::format("  strides {}, offset {}\n", plan.strides.str(), plan.offset);
  }
  std::string operator()(const GatherPlan& plan) const {
    std::string text;
    for (const IndexedDims& dims : plan.indices) {
      const std::string place = dims.count == 1 ? fmt::format("dim {}", dims.source_dim)
                                                : fmt::format("dims {} to {}", dims.source_dim,
                                                              dims.source_dim + dims.count - 1);
      if (!dims.index.defined()) {
        text += fmt::format("  a new dim by {}\n", dims.found != 0 ? "True" : "False");
      } else if (dims.is_mask) {
        text += fmt::format("  {} by a mask of {}, {} selected\n", place, dims.index.numel(),
                            dims.found);
      } else {
        text += fmt::format("  {} by {}\n", place, Index(dims.index).str());
      }
    }
    return text;
  }
  std::string operator()(const ScatterPlan& plan) const {
    return (*this)(plan.places) + accumulates(plan.accumulate);
  }
  std::string operator()(const CopyPlan& plan) const { return accumulates(plan.accumulate); }
  std::string operator()(const FillPlan& plan) const {
    return (plan.mask.defined() ? fmt::format("  where a mask of {} is set\n", plan.mask.numel())
                                : std::string()) +
           accumulates(plan.accumulate);
  }
  static std::string accumulates(bool accumulate) { return accumulate ? "  accumulates\n" : ""; }
};

}  // namespace

std::string_view IndexPlan::name() const noexcept { return kind_name(kind_); }

const Shape& IndexPlan::sizes() const noexcept { return std::visit(SizesOf{}, kind_); }

std::string IndexPlan::str() const {
  detail::check_whole("IndexPlan::str", self_, kind_);
  return fmt::format("{} {} {} on {}\n{}  moves {} bytes, temporaries {} bytes\n", name(),
                     sizes().str(), gantry::name(self_.dtype()), self_.device().str(),
                     std::visit(DetailsOf{}, kind_), moved_, temporary_);
}

std::string explain(const Tensor& self, std::span<const Index> indices) {
  return IndexPlan::for_read(self, indices).str();
}
std::string explain(const Tensor& self, std::initializer_list<Index> indices) {
  return explain(self, std::span(indices.begin(), indices.size()));
}
std::string explain_put(const Tensor& self, std::span<const Index> indices, const Operand& value,
                        bool accumulate) {
  return IndexPlan::for_write(self, indices, value, accumulate).str();
}
std::string explain_put(const Tensor& self, std::initializer_list<Index> indices,
                        const Operand& value, bool accumulate) {
  return explain_put(self, std::span(indices.begin(), indices.size()), value, accumulate);
}

}  // namespace gantry
