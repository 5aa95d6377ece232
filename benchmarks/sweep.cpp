// Times operations on tensors of any shape. Reads rows from stdin, "family shape dim dtype", as
// "sum 300x5000x6 1 bf16", and writes each with its microseconds. sweep.py has the same families.
//
// Usage: sweep cpu|cuda ROUNDS < ROWS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace {

using namespace gantry;

// A call of an operation, whose inputs exist.
using Call = std::function<Tensor()>;
// Makes the further inputs of an operation on `x` along `dim`.
using Family = std::function<Call(const Tensor& x, int dim)>;

// Families whose only input is x.
Family of(const std::function<Tensor(const Tensor&)>& operation) {
  return [=](const Tensor& x, int) -> Call { return [=] { return operation(x); }; };
}
Family along(const std::function<Tensor(const Tensor&, int)>& operation) {
  return [=](const Tensor& x, int dim) -> Call { return [=] { return operation(x, dim); }; };
}
// Families of two arrays of one shape.
Family of_two(const std::function<Tensor(const Tensor&, const Tensor&)>& operation) {
  return [=](const Tensor& x, int) -> Call {
    const Tensor y = x.flip(0).contiguous();
    return [=] { return operation(x, y); };
  };
}

// Families along a dim whose third input are indices: one for each entry of the dim, or of x.
using Indexed = std::function<Tensor(const Tensor& x, int dim, const Tensor& index)>;
Family by_entries(const Indexed& operation) {
  return [=](const Tensor& x, int dim) -> Call {
    const Tensor index = randint(x.size(dim), {x.size(dim)}, {.dtype = i64, .device = x.device()});
    return [=] { return operation(x, dim, index); };
  };
}
Family by_elements(const Indexed& operation) {
  return [=](const Tensor& x, int dim) -> Call {
    const Tensor index = randint(x.size(dim), x.sizes(), {.dtype = i64, .device = x.device()});
    return [=] { return operation(x, dim, index); };
  };
}

void add_elementwise(std::map<std::string, Family>& all) {
  using T = const Tensor&;
  all["exp"] = of([](T x) { return x.exp(); });
  all["tanh"] = of([](T x) { return x.tanh(); });
  all["gelu"] = of([](T x) { return x.gelu(); });
  all["sigmoid"] = of([](T x) { return x.sigmoid(); });
  all["erf"] = of([](T x) { return x.erf(); });
  all["abs"] = of([](T x) { return x.abs(); });
  all["pow3"] = of([](T x) { return x.pow(3.0); });
  all["add_scalar"] = of([](T x) { return x + 1; });
  all["clamp"] = of([](T x) { return x.clamp(-1, 1); });
  all["to_other"] = of([](T x) { return x.to(x.dtype() == f32 ? bf16 : f32); });
  all["add"] = of_two([](T x, T y) { return x + y; });
  all["mul"] = of_two([](T x, T y) { return x * y; });
  all["compare"] = of_two([](T x, T y) { return x > y; });
  all["maximum"] = of_two([](T x, T y) { return maximum(x, y); });
  all["where"] = [](T x, int) -> Call {
    const Tensor y = x.flip(0).contiguous();
    const Tensor mask = x > 0;
    return [=] { return where(mask, x, y); };
  };
  all["add_row"] = [](T x, int dim) -> Call {
    const Tensor row = x.narrow(dim, 0, 1).contiguous();
    return [=] { return x + row; };
  };
}

void add_layouts(std::map<std::string, Family>& all) {
  using T = const Tensor&;
  all["slice"] = along([](T x, int dim) { return x.narrow(dim, 1, x.size(dim) - 2) + 1; });
  all["flip"] = along([](T x, int dim) { return x.flip(dim); });
  all["roll"] = along([](T x, int dim) { return x.roll(1, dim); });
  all["cat"] = along([](T x, int dim) { return cat({x, x}, dim); });
  all["stack"] = along([](T x, int dim) { return stack({x, x}, dim); });
  all["transpose"] = along([](T x, int dim) { return x.transpose(dim, dim + 1).contiguous(); });
  all["tril"] = of([](T x) { return tril(x); });
}

void add_reductions(std::map<std::string, Family>& all) {
  using T = const Tensor&;
  all["sum"] = along([](T x, int dim) { return x.sum(dim); });
  all["mean"] = along([](T x, int dim) { return x.mean(dim); });
  all["amax"] = along([](T x, int dim) { return x.amax(dim); });
  all["prod"] = along([](T x, int dim) { return x.prod(dim); });
  all["any"] = along([](T x, int dim) { return x.any(dim); });
  all["argmax"] = along([](T x, int dim) { return x.argmax(dim); });
  all["var"] = along([](T x, int dim) { return var(x, dim); });
  all["var_mean"] = along([](T x, int dim) { return var_mean(x, {.dims = dim}).var; });
  all["norm"] = along([](T x, int dim) { return norm(x, 2, dim); });
  all["logsumexp"] = along([](T x, int dim) { return x.logsumexp(dim); });
  all["softmax"] = along([](T x, int dim) { return x.softmax(dim); });
  all["log_softmax"] = along([](T x, int dim) { return x.log_softmax(dim); });
  all["cumsum"] = along([](T x, int dim) { return x.cumsum(dim); });
  all["cumprod"] = along([](T x, int dim) { return x.cumprod(dim); });
  all["cummax"] = along([](T x, int dim) { return x.cummax(dim).values; });
}

void add_indexing(std::map<std::string, Family>& all) {
  using T = const Tensor&;
  all["index_select"] = by_entries([](T x, int d, T index) { return index_select(x, d, index); });
  all["index_add"] = by_entries([](T x, int d, T index) { return index_add(x, d, index, x); });
  all["gather"] = by_elements([](T x, int d, T index) { return gather(x, d, index); });
  all["scatter_add"] = by_elements([](T x, int d, T index) { return scatter_add(x, d, index, x); });
  all["masked_select"] = [](T x, int) -> Call {
    const Tensor mask = x > 0;
    return [=] { return masked_select(x, mask); };
  };
  all["nonzero"] = of([](T x) { return nonzero(x > 0); });
  all["sort"] = along([](T x, int dim) { return x.sort(dim).values; });
  all["topk"] = along([](T x, int dim) { return x.topk(5, dim).values; });
  all["unique"] = of([](T x) { return unique(x).values; });
}

void add_others(std::map<std::string, Family>& all) {
  using T = const Tensor&;
  all["uniform"] = of([](T x) { return Tensor(x).uniform_(); });
  all["normal"] = of([](T x) { return Tensor(x).normal_(); });
  all["randperm"] =
      of([](T x) { return randperm(x.numel(), {.dtype = i64, .device = x.device()}); });
  all["mm_64"] = [](T x, int) -> Call {
    const Tensor y = randn({x.size(-1), 64}, {.device = x.device()}).to(x.dtype());
    return [=] { return x.matmul(y); };
  };
  all["mm_64t"] = [](T x, int) -> Call {
    const Tensor y = randn({64, x.size(-1)}, {.device = x.device()}).to(x.dtype()).t();
    return [=] { return x.matmul(y); };
  };
  all["mv"] = [](T x, int) -> Call {
    const Tensor y = randn({x.size(-1)}, {.device = x.device()}).to(x.dtype());
    return [=] { return x.matmul(y); };
  };
}

std::map<std::string, Family> families() {
  std::map<std::string, Family> all;
  add_elementwise(all);
  add_layouts(all);
  add_reductions(all);
  add_indexing(all);
  add_others(all);
  return all;
}

Shape shape_of(const std::string& text) {
  Shape shape;
  std::istringstream words(text);
  for (std::string size; std::getline(words, size, 'x');) shape.push_back(std::stoll(size));
  return shape;
}

Tensor input(const Shape& shape, const std::string& dtype, Device device) {
  if (dtype == "i64") return randint(-1000, 1000, shape, {.dtype = i64, .device = device});
  return randn(shape, {.device = device}).to(dtype == "bf16" ? bf16 : f32);
}

// The median of `rounds` times of a call, each the mean of as many calls as take a moment.
double microseconds(const Call& call, Device device, int rounds) {
  using Clock = std::chrono::steady_clock;
  const auto once = [&](int calls) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) (void)call();
    if (device.is_cuda()) synchronize(device);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
  };
  once(1);
  const double first = once(1);
  const int calls = device.is_cuda() ? 10 : std::clamp(static_cast<int>(2000 / first), 1, 100);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(once(calls));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string place = argc == 3 ? argv[1] : "";
  if (place != "cpu" && place != "cuda") {
    std::fprintf(stderr, "usage: sweep cpu|cuda ROUNDS < ROWS\n");
    return 2;
  }
  const Device device = place == "cpu" ? Device::cpu() : Device::cuda(0);
  const int rounds = std::stoi(argv[2]);
  const std::map<std::string, Family> all = families();
  int failures = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string family;
    std::string shape;
    std::string dtype;
    int dim = 0;
    words >> family >> shape >> dim >> dtype;
    try {
      const Tensor x = input(shape_of(shape), dtype, device);
      const Call call = all.at(family)(x, dim);
      std::printf("%s %.3f\n", line.c_str(), microseconds(call, device, rounds));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", line.c_str(), error.what());
      ++failures;
    }
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}
