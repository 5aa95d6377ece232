#include "tensor/linalg/contract.hpp"

#include <algorithm>

#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/reductions.hpp>

namespace gantry::detail {

namespace {

int position_of(const std::vector<int>& labels, int label) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  return found == labels.end() ? -1 : static_cast<int>(found - labels.begin());
}

void remove_label(LabelledTensor& operand, int at) {
  operand.tensor = operand.tensor.squeeze(at);
  operand.labels.erase(operand.labels.begin() + at);
}

// Removes dims of size 1 whose label is larger in the other operand: they broadcast.
void drop_broadcast_labels(LabelledTensor& operand, const LabelledTensor& other) {
  for (int d = operand.tensor.dim() - 1; d >= 0; --d) {
    const int there = position_of(other.labels, operand.labels[static_cast<std::size_t>(d)]);
    if (there >= 0 && operand.tensor.size(d) == 1 && other.tensor.size(there) != 1) {
      remove_label(operand, d);
    }
  }
}

// The dims of one operand, by their part in a product.
struct Groups {
  std::vector<int> batch;     // in both, kept
  std::vector<int> own;       // in this one alone, kept
  std::vector<int> contract;  // in both, summed
};

Groups groups_of(const LabelledTensor& operand, const LabelledTensor& first,
                 const LabelledTensor& other, const std::vector<bool>& is_kept) {
  Groups groups;
  // Labels of both in the order of the first operand.
  for (const int label : first.labels) {
    if (position_of(operand.labels, label) < 0 || position_of(other.labels, label) < 0) continue;
    (is_kept[static_cast<std::size_t>(label)] ? groups.batch : groups.contract).push_back(label);
  }
  for (const int label : operand.labels) {
    if (position_of(other.labels, label) < 0) groups.own.push_back(label);
  }
  return groups;
}

Shape sizes_of(const LabelledTensor& operand, const std::vector<int>& labels) {
  Shape sizes;
  for (const int label : labels) {
    sizes.push_back(operand.tensor.size(position_of(operand.labels, label)));
  }
  return sizes;
}

// The operand as [batch, first group, second group].
Tensor as_matrices(const LabelledTensor& operand, const std::vector<int>& batch,
                   const std::vector<int>& first, const std::vector<int>& second) {
  Dims order;
  for (const std::vector<int>* group : {&batch, &first, &second}) {
    for (const int label : *group) order.push_back(position_of(operand.labels, label));
  }
  return operand.tensor.permute(order).reshape({sizes_of(operand, batch).product(),
                                                sizes_of(operand, first).product(),
                                                sizes_of(operand, second).product()});
}

// a [B, M, K] times b [B, K, N].
Tensor multiply(const Tensor& a, const Tensor& b) {
  if (a.size(2) == 1) return mul(a, b);
  if (is_floating_point(a.dtype())) return bmm(a, b);
  const Tensor products = mul(a.unsqueeze(2), b.transpose(1, 2).unsqueeze(1));
  return products.sum(3, false, a.dtype());
}

}  // namespace

LabelledTensor sum_out_labels(const LabelledTensor& operand, const std::vector<bool>& is_kept) {
  LabelledTensor result = operand;
  Dims dims;
  for (int d = operand.tensor.dim() - 1; d >= 0; --d) {
    if (is_kept[static_cast<std::size_t>(operand.labels[static_cast<std::size_t>(d)])]) continue;
    if (operand.tensor.size(d) == 1) {
      remove_label(result, d);
    } else {
      dims.push_back(d);
    }
  }
  if (dims.empty()) return result;
  // The dims were those of `operand`.
  Dims present;
  for (const std::int64_t d : dims) {
    present.push_back(position_of(result.labels, operand.labels[static_cast<std::size_t>(d)]));
  }
  result.tensor = result.tensor.sum(present, false, operand.tensor.dtype());
  for (const std::int64_t d : dims) {
    const int label = operand.labels[static_cast<std::size_t>(d)];
    result.labels.erase(result.labels.begin() + position_of(result.labels, label));
  }
  return result;
}

LabelledTensor contract(const LabelledTensor& left, const LabelledTensor& right,
                        const std::vector<bool>& is_kept) {
  LabelledTensor a = left;
  LabelledTensor b = right;
  drop_broadcast_labels(a, b);
  drop_broadcast_labels(b, a);
  const auto summed_alone = [&is_kept](const LabelledTensor& operand, const LabelledTensor& other) {
    std::vector<bool> kept = is_kept;
    for (const int label : other.labels) kept[static_cast<std::size_t>(label)] = true;
    return sum_out_labels(operand, kept);
  };
  const LabelledTensor whole_a = a;
  a = summed_alone(a, b);
  b = summed_alone(b, whole_a);
  const Groups of_a = groups_of(a, a, b, is_kept);
  const Groups of_b = groups_of(b, a, a, is_kept);
  const Tensor product = multiply(as_matrices(a, of_a.batch, of_a.own, of_a.contract),
                                  as_matrices(b, of_a.batch, of_a.contract, of_b.own));
  LabelledTensor result;
  Shape sizes;
  for (const std::vector<int>* group : {&of_a.batch, &of_a.own, &of_b.own}) {
    result.labels.insert(result.labels.end(), group->begin(), group->end());
    for (const std::int64_t size : sizes_of(group == &of_b.own ? b : a, *group)) {
      sizes.push_back(size);
    }
  }
  result.tensor = product.reshape(sizes);
  return result;
}

Tensor ordered_by(const LabelledTensor& operand, const std::vector<int>& labels) {
  Tensor result = operand.tensor;
  std::vector<int> present = operand.labels;
  for (const int label : labels) {
    if (position_of(present, label) >= 0) continue;
    result = result.unsqueeze(result.dim());
    present.push_back(label);
  }
  Dims order;
  for (const int label : labels) order.push_back(position_of(present, label));
  return result.permute(order);
}

}  // namespace gantry::detail
