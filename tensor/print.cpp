#include <gantry/tensor/print.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>

#include <gantry/core/error.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tensor/check.hpp"

namespace gantry {

namespace {

std::mutex options_mutex;
PrintOptions current_options;

// The number format of one tensor, chosen as PyTorch does: integers without decimals, scientific
// notation if the magnitudes differ too much.
class NumberFormat {
 public:
  NumberFormat(const std::vector<double>& values, DType dtype, int precision)
      : floating_(is_floating_point(dtype)),
        boolean_(dtype == DType::bool_),
        precision_(precision) {
    if (floating_) choose_style(values);
  }

  std::string operator()(double value) const {
    if (boolean_) return value != 0 ? "true" : "false";
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    if (scientific_) return fmt::format("{:.{}e}", value, precision_);
    if (whole_) return fmt::format("{:.0f}.", value);
    return fmt::format("{:.{}f}", value, precision_);
  }

  std::string operator()(std::int64_t value) const { return std::to_string(value); }

 private:
  void choose_style(const std::vector<double>& values) {
    double smallest = INFINITY;
    double largest = 0;
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      whole_ = whole_ && value == std::trunc(value);
      if (value == 0) continue;
      smallest = std::min(smallest, std::abs(value));
      largest = std::max(largest, std::abs(value));
    }
    if (largest == 0) return;
    scientific_ = largest > 1e8 || largest / smallest > 1000.0 || (!whole_ && smallest < 1e-4);
  }

  bool floating_;
  bool boolean_;
  int precision_;
  bool whole_ = true;
  bool scientific_ = false;
};

// Writes the elements of a host tensor in nested brackets.
class Printer {
 public:
  Printer(const Tensor& host, const Shape& shape, const PrintOptions& options, bool abbreviated)
      : host_(host), shape_(shape), options_(options), abbreviated_(abbreviated) {
    const bool integral = category(host.dtype()) == DTypeCategory::integral;
    std::vector<double> reals;
    if (!integral) reals = host.to_vector<double>();
    const NumberFormat format(reals, host.dtype(), options.precision);
    if (integral) {
      for (const std::int64_t value : host.to_vector<std::int64_t>())
        texts_.push_back(format(value));
    } else {
      for (const double value : reals) texts_.push_back(format(value));
    }
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  std::string text() {
    write(0, 0);
    return std::move(out_);
  }

 private:
  // The number of elements shown along `dim` of the summarized tensor.
  std::int64_t shown(int dim) const { return host_.sizes()[dim]; }
  bool hides(int dim) const { return abbreviated_ && shown(dim) < shape_[dim]; }

  void write(int dim, std::size_t first) {
    if (dim == shape_.size()) {
      out_ += texts_[first];
      return;
    }
    if (dim == shape_.size() - 1) {
      write_row(dim, first);
      return;
    }
    std::size_t step = 1;
    for (int d = dim + 1; d < shape_.size(); ++d) step *= static_cast<std::size_t>(shown(d));
    const std::string separator =
        "," + std::string(static_cast<std::size_t>(shape_.size() - dim - 1), '\n') +
        std::string(static_cast<std::size_t>(dim) + 1, ' ');
    out_ += '[';
    for (std::int64_t i = 0; i < shown(dim); ++i) {
      if (i > 0) out_ += separator;
      if (hides(dim) && i == options_.edge_items) out_ += "..." + separator;
      write(dim + 1, first + static_cast<std::size_t>(i) * step);
    }
    out_ += ']';
  }

  void write_row(int dim, std::size_t first) {
    const std::size_t indent = static_cast<std::size_t>(dim) + 1;
    std::size_t column = indent;
    out_ += '[';
    const auto item = [&](const std::string& text, bool is_first) {
      if (!is_first) {
        out_ += ',';
        ++column;
        if (column + 1 + text.size() + 1 > static_cast<std::size_t>(options_.line_width)) {
          out_ += '\n' + std::string(indent, ' ');
          column = indent;
        } else {
          out_ += ' ';
          ++column;
        }
      }
      out_ += text;
      column += text.size();
    };
    for (std::int64_t i = 0; i < shown(dim); ++i) {
      if (hides(dim) && i == options_.edge_items) item("...", false);
      const std::string& text = texts_[first + static_cast<std::size_t>(i)];
      item(std::string(width_ - text.size(), ' ') + text, i == 0);
    }
    out_ += ']';
  }

  const Tensor& host_;
  const Shape& shape_;
  const PrintOptions& options_;
  bool abbreviated_;
  std::vector<std::string> texts_;
  std::size_t width_ = 0;
  std::string out_;
};

// The first and last `edge` elements of every dim.
Tensor edges_of(Tensor tensor, std::int64_t edge) {
  for (int d = 0; d < tensor.dim(); ++d) {
    const std::int64_t size = tensor.sizes()[d];
    if (size <= 2 * edge) continue;
    tensor = cat({tensor.narrow(d, 0, edge), tensor.narrow(d, size - edge, edge)}, d);
  }
  return tensor;
}

}  // namespace

PrintOptions print_options() {
  const std::scoped_lock lock(options_mutex);
  return current_options;
}

void set_print_options(const PrintOptions& options) {
  const auto require = [](std::string_view name, std::int64_t value, std::int64_t least) {
    if (value >= least) return;
    throw InvalidArgument(fmt::format("set_print_options: expected {} of at least {}, but got {}",
                                      name, least, value));
  };
  require("precision", options.precision, 0);
  require("threshold", options.threshold, 0);
  require("edge_items", options.edge_items, 1);
  require("line_width", options.line_width, 1);
  const std::scoped_lock lock(options_mutex);
  current_options = options;
}

std::string Tensor::str() const {
  if (!defined()) return "[undefined tensor]";
  const PrintOptions options = print_options();
  const std::string footer = fmt::format("{} {} {}", sizes().str(), name(dtype()), device().str());
  if (numel() == 0) return "[]\n" + footer;
  const bool abbreviated = numel() > options.threshold;
  const Tensor part = abbreviated ? edges_of(*this, options.edge_items) : *this;
  const Tensor host = part.to_host(dtype());
  return Printer(host, sizes(), options, abbreviated).text() + "\n" + footer;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.str(); }

}  // namespace gantry
