#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/tensor/contractions.hpp>

#include "kernels/op_scope.hpp"
#include "tensor/linalg/contract.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

namespace {

// Labels 0 to 25 are A to Z, 26 to 51 a to z. Those above are the dims of the ellipsis.
constexpr int kLetters = 52;
constexpr int kLabels = kLetters + kMaxDims;
// In place of the ellipsis, in subscripts that are not yet expanded.
constexpr int kEllipsis = -1;

using Labels = std::vector<int>;

int label_of(char letter) { return letter <= 'Z' ? letter - 'A' : letter - 'a' + 26; }
char letter_of(int label) { return static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26); }

[[noreturn]] void refuse(const std::string& text, Device device) {
  throw InvalidArgument("einsum(): " + text, device.str());
}

// A position in the equation.
class Reader {
 public:
  Reader(std::string_view text, Device device) : text_(text), device_(device) {}

  bool at_end() const { return at_ == text_.size(); }
  // Skips `token` if it comes next.
  bool skip(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  // The subscripts of one operand, or of the output, up to a comma, an arrow or the end.
  Labels subscripts(const std::string& owner) {
    Labels labels;
    while (!at_end() && text_[at_] != ',' && text_.substr(at_, 2) != "->") {
      const char c = text_[at_];
      if (c == ' ') {
        ++at_;
      } else if (c == '.') {
        if (std::count(labels.begin(), labels.end(), kEllipsis) != 0) {
          refuse(fmt::format("found '.' for {} for which an ellipsis was already found", owner),
                 device_);
        }
        if (!skip("...")) {
          refuse(fmt::format("found '.' for {} that is not part of any ellipsis", owner), device_);
        }
        labels.push_back(kEllipsis);
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        labels.push_back(label_of(c));
        ++at_;
      } else {
        refuse_subscript();
      }
    }
    return labels;
  }
  [[noreturn]] void refuse_subscript() const {
    refuse(fmt::format("invalid subscript given at index {} in the equation string, subscripts "
                       "must be in [a-zA-Z]",
                       at_),
           device_);
  }

 private:
  std::string_view text_;
  Device device_;
  std::size_t at_ = 0;
};

struct Equation {
  std::vector<Labels> operands;
  Labels output;
  bool has_output = false;
};

Equation parse(std::string_view text, Device device) {
  Equation equation;
  Reader reader(text, device);
  do {
    equation.operands.push_back(
        reader.subscripts(fmt::format("operand {}", equation.operands.size())));
  } while (reader.skip(","));
  if (reader.skip("->")) {
    equation.has_output = true;
    equation.output = reader.subscripts("the output");
    if (!reader.at_end()) reader.refuse_subscript();
  }
  return equation;
}

// The number of dims that the ellipsis of an operand covers.
int covered(const Labels& labels, const Tensor& operand, std::size_t i) {
  const bool has_ellipsis = std::count(labels.begin(), labels.end(), kEllipsis) != 0;
  const int letters = static_cast<int>(labels.size()) - (has_ellipsis ? 1 : 0);
  if (has_ellipsis ? letters > operand.dim() : letters != operand.dim()) {
    throw ShapeError(
        fmt::format("einsum(): the number of subscripts in the equation ({}) {} the number of "
                    "dimensions ({}) for operand {}{}",
                    letters, has_ellipsis ? "is more than" : "does not match", operand.dim(), i,
                    has_ellipsis ? "" : " and no ellipsis was given"),
        operand.device().str());
  }
  return operand.dim() - letters;
}

// `labels` with the last `count` of `most` ellipsis labels in place of the ellipsis.
Labels expanded(const Labels& labels, int count, int most) {
  Labels result;
  for (const int label : labels) {
    if (label != kEllipsis) {
      result.push_back(label);
      continue;
    }
    for (int k = most - count; k < most; ++k) result.push_back(kLetters + k);
  }
  return result;
}

// The output of an equation without one.
Labels implicit_output(const std::vector<Labels>& operands, int ellipsis_dims) {
  std::array<int, kLetters> counts{};
  for (const Labels& labels : operands) {
    for (const int label : labels) {
      if (label < kLetters) ++counts[static_cast<std::size_t>(label)];
    }
  }
  Labels output;
  for (int k = 0; k < ellipsis_dims; ++k) output.push_back(kLetters + k);
  for (int label = 0; label < kLetters; ++label) {
    if (counts[static_cast<std::size_t>(label)] == 1) output.push_back(label);
  }
  return output;
}

void check_output_labels(const Labels& output, const std::vector<Labels>& operands, Device device) {
  for (auto label = output.begin(); label != output.end(); ++label) {
    if (*label >= kLetters) continue;
    if (std::find(output.begin(), label, *label) != label) {
      refuse(fmt::format("output subscript {} appears more than once in the output",
                         letter_of(*label)),
             device);
    }
    const bool is_known =
        std::any_of(operands.begin(), operands.end(), [label](const Labels& labels) {
          return std::find(labels.begin(), labels.end(), *label) != labels.end();
        });
    if (!is_known) {
      refuse(fmt::format("output subscript {} does not appear in the equation for any input "
                         "operand",
                         letter_of(*label)),
             device);
    }
  }
}

// Takes the diagonals of repeated labels.
detail::LabelledTensor without_repeats(const Tensor& operand, const Labels& labels,
                                       std::size_t index) {
  detail::LabelledTensor result{operand, labels};
  for (std::size_t second = 0; second < result.labels.size(); ++second) {
    const auto end = result.labels.begin() + static_cast<std::ptrdiff_t>(second);
    const int label = *end;
    const auto first = std::find(result.labels.begin(), end, label);
    if (first == end) continue;
    const auto d1 = static_cast<int>(first - result.labels.begin());
    const auto d2 = static_cast<int>(second);
    if (result.tensor.size(d1) != result.tensor.size(d2)) {
      throw ShapeError(
          fmt::format("einsum(): subscript {} is repeated for operand {} but the sizes don't "
                      "match, {} != {}",
                      letter_of(label), index, result.tensor.size(d2), result.tensor.size(d1)),
          operand.device().str());
    }
    result.tensor = result.tensor.diagonal(0, d1, d2);
    result.labels.erase(end);
    result.labels.erase(result.labels.begin() + d1);
    result.labels.push_back(label);
    second = static_cast<std::size_t>(-1);  // from the start, as the dims have moved
  }
  return result;
}

void check_sizes(const std::vector<detail::LabelledTensor>& operands) {
  std::array<std::int64_t, kLabels> sizes;
  sizes.fill(1);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto& [tensor, labels] = operands[i];
    for (int d = 0; d < tensor.dim(); ++d) {
      const int label = labels[static_cast<std::size_t>(d)];
      std::int64_t& known = sizes[static_cast<std::size_t>(label)];
      const std::int64_t size = tensor.size(d);
      if (size == 1 || size == known) continue;
      if (known == 1) {
        known = size;
        continue;
      }
      const std::string what = label < kLetters ? fmt::format("subscript {}", letter_of(label))
                                                : "a dimension of the ellipsis";
      throw ShapeError(
          fmt::format("einsum(): {} has size {} for operand {} which does not broadcast with "
                      "previously seen size {}",
                      what, size, i, known),
          tensor.device().str());
    }
  }
}

void check_dtypes(const std::vector<Tensor>& operands) {
  for (const Tensor& operand : operands) {
    const DType dtype = operand.dtype();
    if (dtype != operands[0].dtype() || (dtype == DType::bool_ && operands.size() > 1)) {
      throw DTypeError(fmt::format("einsum(): expected operands of one dtype of numbers, but got "
                                   "{} and {}",
                                   torch_name(operands[0].dtype()), torch_name(dtype)),
                       operand.device().str());
    }
  }
}

}  // namespace

Tensor einsum(std::string_view text, const std::vector<Tensor>& operands) {
  const kernels::OpScope scope("einsum");
  if (operands.empty()) throw InvalidArgument("einsum(): must provide at least one operand");
  const Device device = detail::common_device("einsum", operands);
  check_dtypes(operands);
  const Equation equation = parse(text, device);
  if (equation.operands.size() != operands.size()) {
    refuse(fmt::format("{} operands were provided than specified in the equation",
                       equation.operands.size() > operands.size() ? "fewer" : "more"),
           device);
  }
  int most = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    most = std::max(most, covered(equation.operands[i], operands[i], i));
  }
  std::vector<Labels> labels;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int own = covered(equation.operands[i], operands[i], i);
    labels.push_back(expanded(equation.operands[i], own, most));
  }
  const Labels output =
      equation.has_output ? expanded(equation.output, most, most) : implicit_output(labels, most);
  check_output_labels(output, labels, device);
  std::vector<detail::LabelledTensor> inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(without_repeats(operands[i], labels[i], i));
  }
  check_sizes(inputs);

  // A label is kept while the output or a later operand has it.
  const auto kept_after = [&](std::size_t i) {
    std::vector<bool> is_kept(kLabels, false);
    for (const int label : output) is_kept[static_cast<std::size_t>(label)] = true;
    for (std::size_t later = i + 1; later < inputs.size(); ++later) {
      for (const int label : inputs[later].labels) is_kept[static_cast<std::size_t>(label)] = true;
    }
    return is_kept;
  };
  detail::LabelledTensor result = detail::sum_out_labels(inputs[0], kept_after(0));
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    result = detail::contract(result, inputs[i], kept_after(i));
  }
  return detail::ordered_by(result, output);
}

}  // namespace gantry
