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

// Note [Number format]
// As in PyTorch, one format serves all shown elements, and the elements that are finite and not
// zero determine it: whole numbers have no digits after the point, and magnitudes that are far
// apart, very large or very small make the notation scientific. The same elements determine the
// width, so a wider zero, infinity or NaN exceeds it.
class NumberFormat {
 public:
  NumberFormat(const std::vector<double>& values, const PrintOptions& options)
      : precision_(options.precision) {
    std::vector<double> significant;
    for (const double value : values) {
      if (std::isfinite(value) && value != 0) significant.push_back(value);
    }
    if (significant.empty()) return;
    double smallest = INFINITY;
    double largest = 0;
    for (const double value : significant) {
      is_whole_ = is_whole_ && value == std::ceil(value);
      smallest = std::min(smallest, std::abs(value));
      largest = std::max(largest, std::abs(value));
    }
    is_scientific_ =
        options.sci_mode.value_or(largest / smallest > 1000.0 || largest > 1e8 || smallest < 1e-4);
    for (const double value : significant) width_ = std::max(width_, text(value).size());
  }

  std::size_t width() const { return width_; }

  std::string text(double value) const {
    if (is_scientific_) return fmt::format("{:.{}e}", value, precision_);
    if (is_whole_) return fmt::format("{:.0f}{}", value, std::isfinite(value) ? "." : "");
    return fmt::format("{:.{}f}", value, precision_);
  }

 private:
  int precision_;
  bool is_whole_ = true;
  bool is_scientific_ = false;
  std::size_t width_ = 1;
};

// The elements of a host tensor as texts, and the width of a column.
struct Texts {
  Texts(const Tensor& host, const PrintOptions& options) {
    if (is_floating_point(host.dtype())) {
      const std::vector<double> values = host.to_vector<double>();
      const NumberFormat format(values, options);
      for (const double value : values) texts.push_back(format.text(value));
      width = format.width();
      return;
    }
    const bool is_bool = host.dtype() == DType::bool_;
    const bool is_u64 = host.dtype() == DType::u64;
    for (const std::int64_t value : host.to_vector<std::int64_t>()) {
      texts.push_back(is_bool  ? (value != 0 ? "True" : "False")
                      : is_u64 ? std::to_string(static_cast<std::uint64_t>(value))
                               : std::to_string(value));
      width = std::max(width, texts.back().size());
    }
  }

  std::string padded(std::size_t i) const {
    const std::string& text = texts[i];
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
  }

  std::vector<std::string> texts;
  std::size_t width = 1;
};

// Writes the elements of a host tensor in nested brackets.
class Printer {
 public:
  Printer(const Tensor& host, const Shape& shape, const PrintOptions& options, bool abbreviated)
      : host_(host),
        shape_(shape),
        options_(options),
        abbreviated_(abbreviated),
        texts_(host, options) {}

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
      out_ += texts_.padded(first);
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

  // As many elements per line as columns fit; every line has the same number.
  void write_row(int dim, std::size_t first) {
    const int column = static_cast<int>(texts_.width) + 2;
    const int per_line = std::max(1, (options_.line_width - dim) / column);
    int items = 0;
    out_ += '[';
    const auto item = [&](const std::string& text) {
      if (items > 0) out_ += items % per_line != 0 ? ", " : ",\n" + indent(dim);
      out_ += text;
      ++items;
    };
    for (std::int64_t i = 0; i < shown(dim); ++i) {
      if (hides(dim) && i == options_.edge_items) item(" ...");
      item(texts_.padded(first + static_cast<std::size_t>(i)));
    }
    out_ += ']';
  }

  static std::string indent(int dim) { return std::string(static_cast<std::size_t>(dim) + 1, ' '); }

  const Tensor& host_;
  const Shape& shape_;
  const PrintOptions& options_;
  bool abbreviated_;
  Texts texts_;
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
