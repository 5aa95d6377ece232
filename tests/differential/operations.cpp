#include "tests/differential/operations.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include <gantry/gantry.hpp>

namespace gantry::testing {

namespace {

using Tensors = std::vector<Tensor>;

// The tensors and parameters of a statement.
struct Arguments {
  const Statement& statement;
  Tensors t;
  std::vector<std::int64_t> n;  // parameters that are numbers

  [[nodiscard]] const Tensor& a() const { return t[0]; }
  [[nodiscard]] int dim(std::size_t i) const { return static_cast<int>(n[i]); }
  [[nodiscard]] bool flag(std::size_t i) const { return n[i] != 0; }
  [[nodiscard]] Dims dims() const { return Dims(n); }
  // The positions t[1] along dim n[0] of t[0].
  [[nodiscard]] Tensor positions() const { return t[1].abs().remainder(a().size(dim(0))); }
};

using Operation = std::function<Tensors(const Arguments&)>;

Tensors both(const ValuesAndIndices& pair) { return {pair.values, pair.indices}; }
Tensors all(const UniqueElements& found) { return {found.values, found.inverse, found.counts}; }

std::optional<std::int64_t> bound(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(std::stoll(text));
}

std::vector<Index> index_list(const Arguments& x) {
  std::vector<Index> entries;
  for (const std::string& entry : split(x.statement.parameters, '/')) {
    if (entry == "N") {
      entries.emplace_back(None);
    } else if (entry == "E") {
      entries.emplace_back(Ellipsis);
    } else if (entry[0] == 'T') {
      entries.emplace_back(x.t[std::stoul(entry.substr(1))]);
    } else if (entry.find(':') != std::string::npos) {
      const std::vector<std::string> bounds = split(entry, ':');
      entries.emplace_back(Slice(bound(bounds[0]), bound(bounds[1]), bound(bounds[2])));
    } else {
      entries.emplace_back(std::stoll(entry));
    }
  }
  return entries;
}

Tensors put(const Arguments& x) {
  const Tensor result = x.a().clone();
  const std::vector<Index> list = index_list(x);
  result.index_put_(std::span<const Index>(list), x.t.back());
  return {result};
}

DType dtype_parameter(const Arguments& x) {
  return input_tensor(x.statement.parameters + "::c:0", Device::cpu()).dtype();
}

template <class F>
Operation unary(F f) {
  return [f](const Arguments& x) { return Tensors{f(x.a())}; };
}
template <class F>
Operation binary(F f) {
  return [f](const Arguments& x) { return Tensors{f(x.t[0], x.t[1])}; };
}
// Over dim n[0], with keepdim n[1].
template <class F>
Operation reduction(F f) {
  return [f](const Arguments& x) { return Tensors{f(x.a(), x.dim(0), x.flag(1))}; };
}

std::map<std::string, Operation, std::less<>> elementwise_operations() {
  using T = const Tensor&;
  return {
      {"neg", unary([](T a) { return -a; })},
      {"abs", unary([](T a) { return a.abs(); })},
      {"sign", unary([](T a) { return a.sign(); })},
      {"square", unary([](T a) { return a.square(); })},
      {"floor", unary([](T a) { return a.floor(); })},
      {"ceil", unary([](T a) { return a.ceil(); })},
      {"round", unary([](T a) { return a.round(); })},
      {"trunc", unary([](T a) { return a.trunc(); })},
      {"relu", unary([](T a) { return a.relu(); })},
      {"logical_not", unary([](T a) { return a.logical_not(); })},
      {"bitwise_not", unary([](T a) { return a.bitwise_not(); })},
      {"isnan", unary([](T a) { return a.isnan(); })},
      {"isinf", unary([](T a) { return a.isinf(); })},
      {"isfinite", unary([](T a) { return a.isfinite(); })},
      {"signbit", unary([](T a) { return a.signbit(); })},
      {"add", binary([](T a, T b) { return a + b; })},
      {"sub", binary([](T a, T b) { return a - b; })},
      {"mul", binary([](T a, T b) { return a * b; })},
      {"div", binary([](T a, T b) { return a / b; })},
      {"eq", binary([](T a, T b) { return a == b; })},
      {"ne", binary([](T a, T b) { return a != b; })},
      {"lt", binary([](T a, T b) { return a < b; })},
      {"le", binary([](T a, T b) { return a <= b; })},
      {"gt", binary([](T a, T b) { return a > b; })},
      {"ge", binary([](T a, T b) { return a >= b; })},
      {"minimum", binary([](T a, T b) { return minimum(a, b); })},
      {"maximum", binary([](T a, T b) { return maximum(a, b); })},
      {"bitwise_and", binary([](T a, T b) { return a & b; })},
      {"bitwise_or", binary([](T a, T b) { return a | b; })},
      {"bitwise_xor", binary([](T a, T b) { return a ^ b; })},
      {"logical_and", binary([](T a, T b) { return a.logical_and(b); })},
      {"logical_or", binary([](T a, T b) { return a.logical_or(b); })},
      {"logical_xor", binary([](T a, T b) { return a.logical_xor(b); })},
      {"add_number", [](auto& x) { return Tensors{x.a() + x.n[0]}; }},
      {"mul_number", [](auto& x) { return Tensors{x.a() * x.n[0]}; }},
      {"rsub_number", [](auto& x) { return Tensors{x.n[0] - x.a()}; }},
      {"gt_number", [](auto& x) { return Tensors{x.a() > x.n[0]}; }},
      {"clamp", [](auto& x) { return Tensors{x.a().clamp(x.n[0], x.n[1])}; }},
      {"where", [](auto& x) { return Tensors{where(x.t[0], x.t[1], x.t[2])}; }},
      {"to", [](auto& x) { return Tensors{x.a().to(dtype_parameter(x))}; }},
      {"view_dtype", [](auto& x) { return Tensors{x.a().contiguous().view(dtype_parameter(x))}; }},
  };
}

std::map<std::string, Operation, std::less<>> reduction_operations() {
  using T = const Tensor&;
  return {
      {"sum",
       [](auto& x) { return Tensors{x.n.empty() ? x.a().sum() : x.a().sum(x.n[0], x.flag(1))}; }},
      {"prod",
       [](auto& x) { return Tensors{x.n.empty() ? x.a().prod() : x.a().prod(x.n[0], x.flag(1))}; }},
      {"amax", reduction([](T a, int d, bool keep) { return a.amax(d, keep); })},
      {"amin", reduction([](T a, int d, bool keep) { return a.amin(d, keep); })},
      {"argmax", reduction([](T a, int d, bool keep) { return a.argmax(d, keep); })},
      {"argmin", reduction([](T a, int d, bool keep) { return a.argmin(d, keep); })},
      {"any", reduction([](T a, int d, bool keep) { return a.any(d, keep); })},
      {"all", reduction([](T a, int d, bool keep) { return a.all(d, keep); })},
      {"max", [](auto& x) { return both(x.a().max(x.dim(0), x.flag(1))); }},
      {"min", [](auto& x) { return both(x.a().min(x.dim(0), x.flag(1))); }},
      {"aminmax",
       [](auto& x) {
         const MinMax found = aminmax(x.a(), x.dim(0), x.flag(1));
         return Tensors{found.min, found.max};
       }},
      {"count_nonzero", [](auto& x) { return Tensors{x.a().count_nonzero(x.n[0])}; }},
      {"cumsum", [](auto& x) { return Tensors{x.a().cumsum(x.dim(0))}; }},
      {"cumprod", [](auto& x) { return Tensors{x.a().cumprod(x.dim(0))}; }},
      {"cummax", [](auto& x) { return both(x.a().cummax(x.dim(0))); }},
      {"cummin", [](auto& x) { return both(x.a().cummin(x.dim(0))); }},
      {"sort", [](auto& x) { return both(x.a().sort(x.dim(0), x.flag(1), true)); }},
      {"argsort", [](auto& x) { return Tensors{x.a().argsort(x.dim(0), x.flag(1), true)}; }},
      {"topk", [](auto& x) { return Tensors{x.a().topk(x.n[0], x.dim(1), x.flag(2)).values}; }},
      {"kthvalue", [](auto& x) { return Tensors{x.a().kthvalue(x.n[0], x.dim(1)).values}; }},
      {"median", [](auto& x) { return Tensors{x.a().median(x.dim(0)).values}; }},
      {"unique", [](auto& x) { return all(x.a().unique(true, true, true)); }},
      {"unique_consecutive", [](auto& x) { return all(x.a().unique_consecutive(true, true)); }},
      {"searchsorted",
       [](auto& x) {
         return Tensors{searchsorted(x.a().sort().values, x.t[1], false, x.flag(0))};
       }},
      {"bincount", [](auto& x) { return Tensors{x.a().abs().flatten().bincount({}, x.n[0])}; }},
      {"diff", [](auto& x) { return Tensors{x.a().diff(x.n[0], x.dim(1))}; }},
      {"isin", [](auto& x) { return Tensors{x.a().isin(x.t[1])}; }},
  };
}

std::map<std::string, Operation, std::less<>> shape_operations() {
  return {
      {"transpose", [](auto& x) { return Tensors{x.a().transpose(x.dim(0), x.dim(1))}; }},
      {"permute", [](auto& x) { return Tensors{x.a().permute(x.dims())}; }},
      {"flatten", [](auto& x) { return Tensors{x.a().flatten(x.dim(0), x.dim(1))}; }},
      {"unsqueeze", [](auto& x) { return Tensors{x.a().unsqueeze(x.dim(0))}; }},
      {"squeeze", [](auto& x) { return Tensors{x.a().squeeze(x.n[0])}; }},
      {"flip", [](auto& x) { return Tensors{x.a().flip(x.n[0])}; }},
      {"roll", [](auto& x) { return Tensors{x.a().roll(x.n[0], x.n[1])}; }},
      {"repeat", [](auto& x) { return Tensors{x.a().repeat(x.dims())}; }},
      {"narrow", [](auto& x) { return Tensors{x.a().narrow(x.dim(0), x.n[1], x.n[2])}; }},
      {"select", [](auto& x) { return Tensors{x.a().select(x.dim(0), x.n[1])}; }},
      {"unfold", [](auto& x) { return Tensors{x.a().unfold(x.dim(0), x.n[1], x.n[2])}; }},
      {"diagonal", [](auto& x) { return Tensors{x.a().diagonal(x.n[0], x.dim(1), x.dim(2))}; }},
      {"tril", [](auto& x) { return Tensors{x.a().tril(x.n[0])}; }},
      {"triu", [](auto& x) { return Tensors{x.a().triu(x.n[0])}; }},
      {"cat", [](auto& x) { return Tensors{cat(x.t, x.dim(0))}; }},
      {"stack", [](auto& x) { return Tensors{stack(x.t, x.dim(0))}; }},
      {"repeat_interleave",
       [](auto& x) { return Tensors{x.a().repeat_interleave(x.n[0], x.dim(1))}; }},
      {"movedim", [](auto& x) { return Tensors{x.a().movedim(x.n[0], x.n[1])}; }},
      {"rot90", [](auto& x) { return Tensors{x.a().rot90(x.n[0])}; }},
  };
}

std::map<std::string, Operation, std::less<>> index_operations() {
  return {
      {"index",
       [](auto& x) {
         const std::vector<Index> list = index_list(x);
         return Tensors{x.a().index(std::span<const Index>(list))};
       }},
      {"index_put", put},
      {"take",
       [](auto& x) {
         return Tensors{x.a().take(x.t[1].remainder(std::max<std::int64_t>(x.a().numel(), 1)))};
       }},
      {"gather", [](auto& x) { return Tensors{x.a().gather(x.dim(0), x.positions())}; }},
      {"index_select",
       [](auto& x) { return Tensors{x.a().index_select(x.dim(0), x.positions())}; }},
      {"take_along_dim",
       [](auto& x) { return Tensors{x.a().take_along_dim(x.positions(), x.dim(0))}; }},
      {"scatter_add",
       [](auto& x) { return Tensors{x.a().scatter_add(x.dim(0), x.positions(), x.t[2])}; }},
      {"index_add",
       [](auto& x) { return Tensors{x.a().index_add(x.dim(0), x.positions(), x.t[2])}; }},
      {"index_fill",
       [](auto& x) { return Tensors{x.a().index_fill(x.dim(0), x.positions(), x.n[1])}; }},
      {"masked_select", [](auto& x) { return Tensors{x.a().masked_select(x.t[1])}; }},
      {"masked_fill", [](auto& x) { return Tensors{x.a().masked_fill(x.t[1], x.n[0])}; }},
      {"masked_scatter", [](auto& x) { return Tensors{x.a().masked_scatter(x.t[1], x.t[2])}; }},
      {"nonzero", [](auto& x) { return Tensors{x.a().nonzero()}; }},
  };
}

const Operation& operation_named(const std::string& name) {
  static const auto operations = [] {
    auto all = elementwise_operations();
    all.merge(reduction_operations());
    all.merge(shape_operations());
    all.merge(index_operations());
    return all;
  }();
  const auto found = operations.find(name);
  if (found == operations.end()) throw std::runtime_error("no operation: " + name);
  return found->second;
}

}  // namespace

std::vector<Tensor> results_of(const Statement& statement, Device device) {
  Arguments arguments{.statement = statement, .t = {}, .n = {}};
  for (const std::string& input : statement.inputs) {
    arguments.t.push_back(input_tensor(input, device));
  }
  const std::string& text = statement.parameters;
  if (text.find_first_not_of("0123456789,-") == std::string::npos && text != "-") {
    for (const std::string& number : split(text, ',')) arguments.n.push_back(std::stoll(number));
  }
  return operation_named(statement.operation)(arguments);
}

}  // namespace gantry::testing
