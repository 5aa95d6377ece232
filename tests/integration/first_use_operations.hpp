// Operations that a program may run for the first time inside a capture.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace gantry::testing {

/// What an operation works on: the same on every device, made without a kernel.
struct FirstUseInputs {
  Tensor square;   ///< f32 [32, 32] on cuda:0
  Tensor indices;  ///< i64 [32] on cuda:0, below 32
  Tensor flag;     ///< bool, true, on cuda:0
  Tensor pinned;   ///< f32 [32, 32], page-locked
  Tensor far;      ///< as square, on cuda:1; undefined with one device
  Tensor large;    ///< f32 [256, 1024] on cuda:0
  std::vector<Device> devices;
};

/// One operation. It gives tensors on any device.
struct FirstUse {
  std::string name;
  int devices = 1;
  std::function<std::vector<Tensor>(const FirstUseInputs&)> run;
};

inline const std::vector<FirstUse>& first_uses() {
  using In = const FirstUseInputs&;
  using Out = std::vector<Tensor>;
  static const auto& all = *new std::vector<FirstUse>{
      {"fill", 1, [](In in) { return Out{in.square.new_full({100}, 3)}; }},
      {"zero", 1, [](In in) { return Out{in.square.new_zeros({100})}; }},
      {"arange", 1, [](In) { return Out{arange(100, Device::cuda(0))}; }},
      {"clone", 1, [](In in) { return Out{in.square.clone()}; }},
      {"transpose_copy", 1, [](In in) { return Out{in.square.t().contiguous()}; }},
      {"convert", 1, [](In in) { return Out{in.square.to(DType::f16)}; }},
      {"add", 1, [](In in) { return Out{in.square + in.square}; }},
      {"add_number", 1, [](In in) { return Out{in.square + 1}; }},
      {"exp", 1, [](In in) { return Out{(in.square * 0.001).exp()}; }},
      {"compare", 1, [](In in) { return Out{gt(in.square, 100)}; }},
      {"where", 1, [](In in) { return Out{where(gt(in.square, 9), in.square, in.square * 2)}; }},
      {"sum", 1, [](In in) { return Out{in.square.sum()}; }},
      {"sum_dim", 1, [](In in) { return Out{in.square.sum(1)}; }},
      {"argmax", 1, [](In in) { return Out{argmax(in.square, 1)}; }},
      {"var", 1, [](In in) { return Out{gantry::var(in.square)}; }},
      {"softmax", 1, [](In in) { return Out{softmax(in.square * 0.01, 1)}; }},
      {"cumsum", 1, [](In in) { return Out{cumsum(in.square, 0)}; }},
      {"matmul", 1, [](In in) { return Out{in.square.matmul(in.square)}; }},
      {"sort", 1, [](In in) { return Out{argsort(in.square, 1, true)}; }},
      {"index_select", 1, [](In in) { return Out{index_select(in.square, 0, in.indices)}; }},
      {"index_add", 1, [](In in) { return Out{index_add(in.square, 0, in.indices, in.square)}; }},
      {"cat", 1,
       [](In in) {
         return Out{cat({in.square, in.square}, 1)};
       }},
      {"from_pinned", 1,
       [](In in) {
         Tensor out = empty_like(in.square);
         out.copy_(in.pinned, true);
         return Out{out};
       }},
      {"graph_if", 1,
       [](In in) {
         Tensor out = in.square.clone();
         graph_if(in.flag, [&] { out.add_(1); });
         return Out{out};
       }},
      {"copy_to_peer", 2,
       [](In in) {
         Tensor out = empty_like(in.far);
         out.copy_(in.square);
         return Out{out};
       }},
      {"copy_from_peer", 2,
       [](In in) {
         Tensor out = empty_like(in.square);
         out.copy_(in.far);
         return Out{out};
       }},
      {"large_copy_to_peer", 2, [](In in) { return Out{in.large.to(Device::cuda(1))}; }},
      {"converting_copy_to_peer", 2,
       [](In in) {
         Tensor out = in.far.new_empty({32, 32}, {.dtype = DType::f64});
         out.copy_(in.square.t());
         return Out{out};
       }},
      {"work_on_peer", 2,
       [](In in) {
         return Out{(in.far * 2).sum(), in.square + 1};
       }},
      {"peer_operand", 2,
       [](In in) {
         const PeerOperands scope;
         return Out{in.square + in.far};
       }},
      {"broadcast", 2, [](In in) { return comm::broadcast(in.square, in.devices); }},
      {"broadcast_coalesced", 2,
       [](In in) {
         return comm::broadcast_coalesced({in.square, in.indices}, in.devices).back();
       }},
      {"reduce_add", 2,
       [](In in) {
         return Out{comm::reduce_add({in.square, in.far}, Device::cuda(1))};
       }},
      {"reduce_add_coalesced", 2,
       [](In in) {
         return comm::reduce_add_coalesced({{in.square}, {in.far}}, Device::cuda(0));
       }},
      {"scatter", 2, [](In in) { return comm::scatter(in.square, in.devices); }},
      {"gather", 2,
       [](In in) {
         return Out{comm::gather({in.square, in.far}, {.destination = Device::cuda(0)})};
       }},
      {"all_reduce", 2,
       [](In in) {
         Out tensors = {in.square.clone(), in.far.clone()};
         comm::all_reduce(tensors);
         return tensors;
       }},
      {"all_to_all", 2,
       [](In in) {
         Out outputs = {empty_like(in.square), empty_like(in.far)};
         const Out inputs = {in.square, in.far};
         comm::all_to_all(outputs, inputs);
         return outputs;
       }},
  };
  return all;
}

}  // namespace gantry::testing
