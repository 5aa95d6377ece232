#include "tools/bench/comm_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tools/bench/pattern.hpp"

namespace gantry::bench {

namespace {

// A form that was prepared for one size.
struct Prepared {
  std::function<void()> call;
  std::function<std::int64_t()> wrong;  // elements, after one call
  std::int64_t count = 0;               // elements of one tensor or part
  std::int64_t bytes = 0;
  double bus_factor = 1;
};

// The parts of every form.
class Maker {
 public:
  Maker(const CommCase& what, const std::vector<Device>& devices)
      : what_(what), devices_(devices), element_(element_size(what.dtype)) {}

  int ranks() const { return static_cast<int>(devices_.size()); }
  const std::vector<Device>& devices() const { return devices_; }
  // Elements of one of `parts` equal parts.
  std::int64_t part(std::int64_t parts) const {
    return std::max<std::int64_t>(1, what_.bytes / static_cast<std::int64_t>(element_) / parts);
  }
  std::int64_t bytes(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(element_);
  }
  double others() const { return static_cast<double>(ranks() - 1) / ranks(); }

  Tensor blank(std::int64_t elements, int rank) const {
    Tensor tensor = empty({elements}, {.dtype = what_.dtype, .device = device(rank)});
    tensor.view(u8).fill_(1);
    return tensor;
  }
  // Elements first … of the data of `rank`, on its device.
  Tensor source(std::int64_t elements, int rank, std::int64_t first = 0) const {
    std::vector<std::byte> host(static_cast<std::size_t>(elements) * element_);
    write_pattern(source_pattern(rank, what_.dtype), what_.dtype, first, elements, host.data());
    return from_blob(host.data(), {elements}, {.dtype = what_.dtype})
        .to(device(rank), {.copy = true});
  }
  // The same part of every rank's data.
  std::vector<Tensor> sources(std::int64_t elements) const {
    std::vector<Tensor> list;
    for (int rank = 0; rank < ranks(); ++rank) list.push_back(source(elements, rank));
    return list;
  }
  std::vector<Tensor> blanks(std::int64_t elements) const {
    std::vector<Tensor> list;
    for (int rank = 0; rank < ranks(); ++rank) list.push_back(blank(elements, rank));
    return list;
  }

  std::int64_t differs(const Pattern& pattern, std::int64_t first, const Tensor& got,
                       std::int64_t from = 0, std::int64_t elements = -1) const {
    const Tensor host = got.cpu();
    return count_wrong(
        pattern, what_.dtype, first, elements < 0 ? host.numel() : elements,
        static_cast<const std::byte*>(host.data()) + static_cast<std::size_t>(from) * element_);
  }
  Pattern data(int rank) const { return source_pattern(rank, what_.dtype); }
  Pattern sum() const { return reduced_pattern(ranks(), what_.dtype, ReduceOp::sum); }
  Pattern reduced() const { return reduced_pattern(ranks(), what_.dtype, what_.op); }
  ReduceOp op() const { return what_.op; }
  int tensors() const { return what_.tensors; }

 private:
  Device device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }

  const CommCase& what_;
  const std::vector<Device>& devices_;
  std::size_t element_;
};

using Tensors = std::vector<Tensor>;

template <class T>
std::shared_ptr<T> shared(T value) {
  return std::make_shared<T>(std::move(value));
}

Prepared make_broadcast(const Maker& make, bool into_out) {
  const std::int64_t count = make.part(1);
  const auto out = shared(into_out ? make.blanks(count) : Tensors());
  const Tensor tensor = make.source(count, 0);
  return {[=, &make] {
            if (into_out) {
              comm::broadcast(tensor, *out);
            } else {
              *out = comm::broadcast(tensor, make.devices());
            }
          },
          [=, &make] {
            std::int64_t wrong = 0;
            for (const Tensor& copy : *out) wrong += make.differs(make.data(0), 0, copy);
            return wrong;
          },
          count, make.bytes(count), 1};
}

Prepared make_reduce_add(const Maker& make) {
  const std::int64_t count = make.part(1);
  const auto inputs = shared(make.sources(count));
  const auto out = shared(Tensor());
  return {[=, &make] { *out = comm::reduce_add(*inputs, make.devices().front()); },
          [=, &make] { return make.differs(make.sum(), 0, *out); }, count, make.bytes(count), 1};
}

Prepared make_scatter(const Maker& make) {
  const std::int64_t count = make.part(make.ranks());
  const Tensor tensor = make.source(count * make.ranks(), 0);
  const auto out = shared(Tensors());
  return {[=, &make] { *out = comm::scatter(tensor, make.devices()); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < out->size(); ++i) {
              wrong += make.differs(make.data(0), static_cast<std::int64_t>(i) * count, (*out)[i]);
            }
            return wrong;
          },
          count, make.bytes(count * make.ranks()), make.others()};
}

Prepared make_gather(const Maker& make) {
  const std::int64_t count = make.part(make.ranks());
  const auto inputs = shared(make.sources(count));
  const auto out = shared(Tensor());
  return {[=, &make] { *out = comm::gather(*inputs, {.destination = make.devices().front()}); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (int i = 0; i < make.ranks(); ++i) {
              wrong += make.differs(make.data(i), 0, *out, i * count, count);
            }
            return wrong;
          },
          count, make.bytes(count * make.ranks()), make.others()};
}

Prepared make_all_reduce(const Maker& make) {
  const std::int64_t count = make.part(1);
  const auto tensors = shared(make.sources(count));
  return {[=, &make] { comm::all_reduce(*tensors, make.op()); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (const Tensor& tensor : *tensors) wrong += make.differs(make.reduced(), 0, tensor);
            return wrong;
          },
          count, make.bytes(count), 2 * make.others()};
}

Prepared make_all_gather(const Maker& make) {
  const std::int64_t count = make.part(make.ranks());
  const auto inputs = shared(make.sources(count));
  const auto out = shared(make.blanks(count * make.ranks()));
  return {[=] { comm::all_gather(*out, *inputs); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (const Tensor& tensor : *out) {
              for (int i = 0; i < make.ranks(); ++i) {
                wrong += make.differs(make.data(i), 0, tensor, i * count, count);
              }
            }
            return wrong;
          },
          count, make.bytes(count * make.ranks()), make.others()};
}

Prepared make_reduce_scatter(const Maker& make) {
  const std::int64_t count = make.part(make.ranks());
  const auto inputs = shared(make.sources(count * make.ranks()));
  const auto out = shared(make.blanks(count));
  return {[=, &make] { comm::reduce_scatter(*out, *inputs, make.op()); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < out->size(); ++i) {
              wrong +=
                  make.differs(make.reduced(), static_cast<std::int64_t>(i) * count, (*out)[i]);
            }
            return wrong;
          },
          count, make.bytes(count * make.ranks()), make.others()};
}

Prepared make_all_to_all(const Maker& make) {
  const std::int64_t count = make.part(make.ranks());
  const auto inputs = shared(make.sources(count * make.ranks()));
  const auto out = shared(make.blanks(count * make.ranks()));
  return {[=] { comm::all_to_all(*out, *inputs); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (int to = 0; to < make.ranks(); ++to) {
              for (int from = 0; from < make.ranks(); ++from) {
                wrong += make.differs(make.data(from), to * count,
                                      (*out)[static_cast<std::size_t>(to)], from * count, count);
              }
            }
            return wrong;
          },
          count, make.bytes(count * make.ranks()), make.others()};
}

Prepared make_broadcast_coalesced(const Maker& make) {
  const std::int64_t count = make.part(make.tensors());
  Tensors list;
  for (int i = 0; i < make.tensors(); ++i) list.push_back(make.source(count, 0, i * count));
  const auto inputs = shared(std::move(list));
  const auto out = shared(std::vector<Tensors>());
  return {[=, &make] { *out = comm::broadcast_coalesced(*inputs, make.devices()); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (const Tensors& copies : *out) {
              for (std::size_t i = 0; i < copies.size(); ++i) {
                wrong +=
                    make.differs(make.data(0), static_cast<std::int64_t>(i) * count, copies[i]);
              }
            }
            return wrong;
          },
          count, make.bytes(count * make.tensors()), 1};
}

Prepared make_reduce_add_coalesced(const Maker& make) {
  const std::int64_t count = make.part(make.tensors());
  std::vector<Tensors> lists(static_cast<std::size_t>(make.ranks()));
  for (int rank = 0; rank < make.ranks(); ++rank) {
    for (int i = 0; i < make.tensors(); ++i) {
      lists[static_cast<std::size_t>(rank)].push_back(make.source(count, rank, i * count));
    }
  }
  const auto inputs = shared(std::move(lists));
  const auto out = shared(Tensors());
  return {[=, &make] { *out = comm::reduce_add_coalesced(*inputs, make.devices().front()); },
          [=, &make] {
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < out->size(); ++i) {
              wrong += make.differs(make.sum(), static_cast<std::int64_t>(i) * count, (*out)[i]);
            }
            return wrong;
          },
          count, make.bytes(count * make.tensors()), 1};
}

using Preparation = std::function<Prepared(const Maker&)>;

const std::vector<std::pair<std::string, Preparation>>& preparations() {
  static const std::vector<std::pair<std::string, Preparation>> kPreparations{
      {"broadcast", [](const Maker& make) { return make_broadcast(make, false); }},
      {"broadcast_out", [](const Maker& make) { return make_broadcast(make, true); }},
      {"reduce_add", make_reduce_add},
      {"scatter", make_scatter},
      {"gather", make_gather},
      {"all_reduce", make_all_reduce},
      {"all_gather", make_all_gather},
      {"reduce_scatter", make_reduce_scatter},
      {"all_to_all", make_all_to_all},
      {"broadcast_coalesced", make_broadcast_coalesced},
      {"reduce_add_coalesced", make_reduce_add_coalesced},
  };
  return kPreparations;
}

std::string reduction_of(const CommCase& what) {
  if (what.form.starts_with("reduce_add")) return "sum";
  const bool reduces = what.form == "all_reduce" || what.form == "reduce_scatter";
  return reduces ? std::string(name(what.op)) : "-";
}

Timing measure(const std::function<void()>& call, const std::vector<Device>& devices,
               const Repetitions& repetitions) {
  const auto batch = [&](int calls) {
    const StopWatch watch;
    for (int i = 0; i < calls; ++i) {
      call();
      if (!repetitions.blocking) continue;
      for (const Device device : devices) synchronize(device);
    }
    for (const Device device : devices) synchronize(device);
    return watch.seconds();
  };
  if (repetitions.warm_up > 0) (void)batch(repetitions.warm_up);
  const Repetitions fitted = repetitions.fitted(batch(1));
  std::vector<double> batch_us;
  for (int i = 0; i < fitted.batches; ++i) {
    batch_us.push_back(batch(fitted.calls) * 1e6 / fitted.calls);
  }
  return summarize(std::move(batch_us), fitted.calls);
}

}  // namespace

const std::vector<std::string>& comm_forms() {
  static const std::vector<std::string> kForms = [] {
    std::vector<std::string> names;
    for (const auto& [form, prepare] : preparations()) names.push_back(form);
    return names;
  }();
  return kForms;
}

Row run_comm(const CommCase& what, const std::vector<Device>& devices,
             const Repetitions& repetitions, bool check) {
  const auto& all = preparations();
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const auto& entry) { return entry.first == what.form; });
  if (at == all.end()) {
    throw InvalidArgument(fmt::format("--op: expected all or some of {}, but got '{}'",
                                      fmt::join(comm_forms(), ", "), what.form));
  }
  const Maker make(what, devices);
  const Prepared prepared = at->second(make);
  for (const Device device : devices) synchronize(device);
  Row row;
  row.operation = "comm." + what.form;
  row.dtype = name(what.dtype);
  row.redop = reduction_of(what);
  row.bytes = prepared.bytes;
  row.count = prepared.count;
  row.variant = row.algorithm = "comm";
  row.mode = "eager";
  row.in_place = what.form == "all_reduce";
  prepared.call();
  for (const Device device : devices) synchronize(device);
  if (check) row.wrong = prepared.wrong();
  if (row.wrong.value_or(0) != 0 || repetitions.batches == 0) return row;
  row.set_timing(measure(prepared.call, devices, repetitions), prepared.bus_factor);
  return row;
}

}  // namespace gantry::bench
