// The documented names of tensors, each used as a program uses it: members, factories, views,
// indices and moves.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

class DocumentedNamesOfTensors : public testing::DeviceTest {
 protected:
  const Device first_ = Device::cuda(0);
  const TensorOptions options_{.dtype = f32, .device = Device::cuda(0)};
};

TEST_F(DocumentedNamesOfTensors, Meta) {
  const Tensor t = zeros({2, 3}, options_);
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.sizes(), Shape({2, 3}));
  EXPECT_EQ(t.size(0), 2);
  EXPECT_EQ(t.strides(), Dims({3, 1}));
  EXPECT_EQ(t.stride(0), 3);
  EXPECT_EQ(t.dim(), 2);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.dtype(), f32);
  EXPECT_EQ(t.device(), first_);
  EXPECT_EQ(t.element_size(), 4U);
  EXPECT_EQ(t.nbytes(), 24U);
  EXPECT_EQ(t.storage().bytes(), 24U);
  EXPECT_EQ(t.storage_offset(), 0);
  EXPECT_NE(t.data_ptr<float>(), nullptr);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_FALSE(t.is_pinned());
  EXPECT_TRUE(t.is_cuda());
  EXPECT_TRUE(t.view({6}).is_view_of(t));
  EXPECT_EQ(t.options().device, first_);
}

TEST_F(DocumentedNamesOfTensors, Factories) {
  const TensorOptions o = options_;
  Generator generator(first_, 1);
  for (const Tensor& t :
       {empty({2}, o), zeros({2}, o), ones({2}, o), full({2}, 3, o), arange(2, o), arange(1, 3, o),
        arange(1, 5, 2, o), linspace(0, 1, 2, o), logspace(0, 1, 2, o), rand({2}, o),
        rand({2}, o, generator), randn({2}, o), randint(0, 5, {2}, o), randperm(2, o),
        tensor({1, 2}, o), empty_strided({2}, {1}, o)}) {
    EXPECT_EQ(t.numel(), 2);
    EXPECT_EQ(t.device(), first_);
  }
  EXPECT_EQ(eye(2, o).sum().item<int>(), 2);
  EXPECT_EQ(tril(ones({2, 2}, o)).sum().item<int>(), 3);
  EXPECT_EQ(triu(ones({2, 2}, o)).sum().item<int>(), 3);
  EXPECT_EQ(scalar_tensor(4, o).item<int>(), 4);
  EXPECT_EQ(bernoulli(full({4}, 1, o)).sum().item<int>(), 4);
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).sizes(), Shape({2, 2}));
  float numbers[2] = {1, 2};
  EXPECT_EQ(from_blob(
                numbers, {2}, {1}, [](void*) {}, Device::cpu())
                .sum()
                .item<int>(),
            3);
  EXPECT_TRUE(empty({2}, {.dtype = f32, .pinned = true}).is_pinned());
  const Tensor t = ones({2}, o);
  for (const Tensor& like : {empty_like(t), zeros_like(t), ones_like(t), full_like(t, 2),
                             rand_like(t), randn_like(t), randint_like(t, 0, 5), t.new_empty({2}),
                             t.new_zeros({2}), t.new_ones({2}), t.new_full({2}, 3)}) {
    EXPECT_EQ(like.options().device, t.options().device);
    EXPECT_EQ(like.dtype(), f32);
  }
}

TEST_F(DocumentedNamesOfTensors, Views) {
  const Tensor t = arange(12, options_).view({3, 4});
  const Tensor row = t.select(0, 0);
  for (const Tensor& view : {t.view({12}),
                             t.reshape({4, 3}),
                             t.transpose(0, 1),
                             t.t(),
                             t.permute({1, 0}),
                             t.movedim(0, 1),
                             t.slice(0, 0, 2),
                             t.slice(1, 0, 4, 2),
                             t.narrow(0, 1, 2),
                             t.select(1, 2),
                             t.unsqueeze(0),
                             t.unsqueeze(0).squeeze(),
                             t.unsqueeze(0).squeeze(0),
                             t.flatten(),
                             t.unflatten(1, {2, 2}),
                             row.expand({3, 4}),
                             row.expand_as(t),
                             row.broadcast_to({3, 4}),
                             t.diagonal(),
                             row.unfold(0, 2, 1),
                             t.as_strided({2}, {1}),
                             t.as_strided({2}, {1}, 3),
                             t.split(2, 0)[0],
                             t.chunk(2, 0)[0],
                             t.unbind(0)[1],
                             t.alias(),
                             t.detach(),
                             t.view(i32)}) {
    EXPECT_TRUE(view.is_view_of(t));
  }
  for (const Tensor& copy : {t.t().contiguous(), t.clone(), t.flip({0}), t.roll(1, 0),
                             t.repeat({1, 2}), t.tile({2, 1})}) {
    EXPECT_FALSE(copy.is_view_of(t));
  }
}

TEST_F(DocumentedNamesOfTensors, Indices) {
  Tensor t = arange(12, options_).view({3, 4});
  const Tensor at = tensor({0, 2}, {.dtype = i64, .device = first_});
  const Tensor mask = t.gt(5);
  EXPECT_EQ(t.index({1, Slice(0, 4, 2)}).numel(), 2);
  EXPECT_EQ(t.index({Ellipsis, None, 0}).sizes(), Shape({3, 1}));
  EXPECT_EQ(t.index({at}).sizes(), Shape({2, 4}));
  EXPECT_EQ(t.index({mask}).numel(), 6);
  EXPECT_EQ(t.index({true}).sizes(), Shape({1, 3, 4}));
  EXPECT_EQ(t[2].numel(), 4);
  t.index_put_({at}, zeros({2, 4}, options_));
  t.index_put_({at}, ones({2, 4}, options_), true);
  EXPECT_EQ(t.take(at).numel(), 2);
  EXPECT_EQ(t.index_select(0, at).size(0), 2);
  const Tensor columns = zeros({3, 1}, {.dtype = i64, .device = first_});
  EXPECT_EQ(t.gather(1, columns).sizes(), Shape({3, 1}));
  t.scatter_(1, columns, ones({3, 1}, options_));
  t.scatter_add_(1, columns, ones({3, 1}, options_));
  t.scatter_reduce_(1, columns, ones({3, 1}, options_), "sum");
  EXPECT_EQ(t.masked_select(mask).numel(), 6);
  EXPECT_EQ(t.masked_fill(mask, 0).numel(), 12);
  t.masked_fill_(mask, 1);
  t.masked_scatter_(mask, ones({6}, options_));
  EXPECT_EQ(where(mask, t, t).numel(), 12);
  EXPECT_EQ(t.nonzero().size(1), 2);
  t.index_add_(0, at, ones({2, 4}, options_));
  t.index_copy_(0, at, ones({2, 4}, options_));
  t.index_fill_(0, at, 2);
  EXPECT_EQ(t[0].sum().item<int>(), 8);
}

TEST_F(DocumentedNamesOfTensors, MovesAndInterop) {
  Tensor t = arange(4, options_);
  EXPECT_EQ(t.to(f64).dtype(), f64);
  EXPECT_EQ(t.to(Device::cpu(), {.non_blocking = true}).device(), Device::cpu());
  EXPECT_FALSE(t.to(first_, {.copy = true}).is_view_of(t));
  EXPECT_EQ(t.to(TensorOptions{.dtype = f16, .device = Device::cpu()}).dtype(), f16);
  EXPECT_EQ(t.cpu().cuda(0).device(), first_);
  EXPECT_EQ(t.half().dtype(), f16);
  EXPECT_EQ(t.type_as(t.to(i32)).dtype(), i32);
  t.copy_(zeros({4}), {.non_blocking = true});
  EXPECT_TRUE(t.cpu().pin_memory().is_pinned());
  t.record_stream(Stream::from_pool(first_));
  EXPECT_EQ(t.sum().item<float>(), 0);
  EXPECT_EQ(t.to_vector<float>().size(), 4U);
  EXPECT_TRUE(t.equal(t));
  EXPECT_TRUE(t.allclose(t, 1e-5, 1e-8, true));
  EXPECT_TRUE(t.isclose(t).all().item<bool>());
  std::ostringstream text;
  text << t;
  EXPECT_NE(text.str().find("cuda:0"), std::string::npos);

  const IpcHandle handle = t.ipc_handle();
  EXPECT_TRUE(Tensor::from_ipc(handle).equal(t));
  EXPECT_TRUE(from_dlpack(to_dlpack(t)).equal(t));
  const testing::TemporaryFolder folder;
  const std::string npy = (folder.path() / "t.npy").string();
  save_npy(npy, t);
  EXPECT_TRUE(load_npy(npy).equal(t.cpu()));
  const std::string file = (folder.path() / "t.safetensors").string();
  save_safetensors(file, {{"t", t}});
  EXPECT_TRUE(load_safetensors(file).tensors.at("t").equal(t.cpu()));
  if (device_count() > 1 && can_access_peer(first_, Device::cuda(1))) {
    const PeerOperands scope;
    EXPECT_TRUE((t + t.cuda(1)).equal(t));
  }
}

}  // namespace
}  // namespace gantry
