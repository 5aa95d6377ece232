// gantry's own exports, whose fields a consumer changes before they come back.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/dlpack.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/tensor/exchange/dlpack_producer.hpp"

namespace gantry {
namespace {

struct Edit {
  const char* name;
  std::function<void(DLTensor& array)> edit;
  std::vector<double> elements;  // that remain
};

class DlpackEditedTest : public testing::DeviceTest {
 protected:
  static std::vector<TensorOptions> places() {
    return {{.dtype = f32}, {.dtype = f32, .pinned = true}, {.dtype = f32, .device = "cuda:0"}};
  }
  // The numbers 0 … 23 as [4, 6], within a larger storage.
  static Tensor numbers(const TensorOptions& place) {
    Tensor whole = zeros({6, 6}, place);
    whole.slice(0, 1, 5).copy_(arange(24, f32).view({4, 6}));
    return whole.slice(0, 1, 5);
  }
  static DLTensor& array_of(DLManagedTensorVersioned* exported) { return exported->dl_tensor; }
  static DLTensor& array_of(DLManagedTensor* exported) { return exported->dl_tensor; }

  // Changes both kinds of exports, and compares what comes back.
  static void check(const Edit& edit) {
    SCOPED_TRACE(edit.name);
    for (const TensorOptions& place : places()) {
      const Tensor x = numbers(place);
      for (const bool copy : {false, true}) {
        const auto comes_back = [&](auto* exported) {
          edit.edit(array_of(exported));
          const Tensor back = from_dlpack(exported, {.copy = copy});
          EXPECT_EQ(back.device(), x.device());
          EXPECT_EQ(back.contiguous().to_vector<double>(), edit.elements);
          EXPECT_EQ(back.is_view_of(x), !copy) << "it has another storage";
        };
        comes_back(to_dlpack(x));
        comes_back(to_dlpack_unversioned(x));
      }
    }
  }
};

TEST_F(DlpackEditedTest, TheFieldsCount) {
  const std::vector<Edit> edits{
      {"fewer rows", [](DLTensor& a) { a.shape[0] = 1; }, {0, 1, 2, 3, 4, 5}},
      {"fewer columns",
       [](DLTensor& a) {
         a.shape[0] = 2;
         a.shape[1] = 2;
       },
       {0, 1, 6, 7}},
      {"fewer dims",
       [](DLTensor& a) {
         a.ndim = 1;
         a.strides[0] = 1;
       },
       {0, 1, 2, 3}},
      {"other strides",
       [](DLTensor& a) {
         a.shape[1] = 3;
         a.strides[1] = 2;
       },
       {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}},
      {"transposed",
       [](DLTensor& a) {
         std::swap(a.shape[0], a.shape[1]);
         std::swap(a.strides[0], a.strides[1]);
         a.shape[0] = 2;
       },
       {0, 6, 12, 18, 1, 7, 13, 19}},
      {"a byte offset",
       [](DLTensor& a) {
         a.byte_offset = 6 * sizeof(float);
         a.shape[0] = 1;
       },
       {6, 7, 8, 9, 10, 11}},
      {"other data",
       [](DLTensor& a) {
         a.data = static_cast<float*>(a.data) + 12;
         a.shape[0] = 2;
       },
       {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
      {"no strides",
       [](DLTensor& a) {
         a.strides = nullptr;
         a.shape[0] = 3;
         a.shape[1] = 2;
       },
       {0, 1, 2, 3, 4, 5}},
      {"more rows, which the storage has",
       [](DLTensor& a) { a.shape[0] = 5; },
       {0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14,
        15, 16, 17, 18, 19, 20, 21, 22, 23, 0, 0,  0,  0,  0,  0}},
  };
  for (const Edit& edit : edits) check(edit);
}

TEST_F(DlpackEditedTest, AnotherDtypeIsReadAsSuch) {
  for (const TensorOptions& place : places()) {
    const Tensor x = numbers(place);
    for (const bool copy : {false, true}) {
      auto* exported = to_dlpack(x);
      exported->dl_tensor.dtype = {0, 32, 1};  // i32
      const Tensor back = from_dlpack(exported, {.copy = copy});
      EXPECT_EQ(back.dtype(), i32);
      EXPECT_EQ(back.to_vector<std::int32_t>()[1], 0x3f800000);  // 1.0F
    }
  }
}

TEST_F(DlpackEditedTest, NoElementsAreNone) {
  for (const TensorOptions& place : places()) {
    auto* exported = to_dlpack(numbers(place));
    exported->dl_tensor.shape[0] = 0;
    const Tensor back = from_dlpack(exported);
    EXPECT_EQ(back.sizes(), Shape({0, 6}));
  }
}

TEST_F(DlpackEditedTest, AnUnchangedExportIsTheTensor) {
  for (const TensorOptions& place : places()) {
    for (const Tensor& x :
         {numbers(place), numbers(place).transpose(0, 1), zeros({0, 3}, place), zeros({}, place)}) {
      const Tensor back = from_dlpack(to_dlpack(x));
      EXPECT_EQ(back.sizes(), x.sizes());
      EXPECT_EQ(back.strides(), x.strides());
      EXPECT_EQ(back.data(), x.data());
      EXPECT_EQ(back.storage(), x.storage());
    }
  }
}

TEST_F(DlpackEditedTest, RefusesFieldsThatLeaveTheStorage) {
  for (const TensorOptions& place : places()) {
    const Tensor x = numbers(place);
    const auto refuses = [&](auto edit) {
      auto* exported = to_dlpack(x);
      edit(exported->dl_tensor);
      EXPECT_THROW(static_cast<void>(from_dlpack(exported)), Error);
    };
    const long owners = x.storage().use_count();
    refuses([](DLTensor& a) { a.shape[0] = 6; });
    refuses([](DLTensor& a) { a.strides[0] = 1 << 20; });
    refuses([](DLTensor& a) { a.strides[1] = -1; });
    refuses([](DLTensor& a) { a.byte_offset = 2; });
    refuses([](DLTensor& a) { a.shape[0] = -1; });
    refuses([](DLTensor& a) { a.data = nullptr; });
    EXPECT_EQ(x.storage().use_count(), owners) << "an export leaks";
  }
}

}  // namespace
}  // namespace gantry
