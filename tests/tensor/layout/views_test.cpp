#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::all_places;
using testing::elements;
using testing::Layout;
using testing::patterned;

using Position = std::vector<std::int64_t>;

double at(const Tensor& tensor, const Position& position) {
  std::int64_t address = tensor.storage_offset();
  for (int d = 0; d < tensor.dim(); ++d) {
    address += position[static_cast<std::size_t>(d)] * tensor.strides()[d];
  }
  const auto bytes = testing::storage_bytes(tensor.storage());
  return testing::decode(bytes.data() + static_cast<std::size_t>(address) * tensor.element_size(),
                         tensor.dtype());
}

// Asserts that `view` shares `source`'s memory and has the given shape. `origin` maps each index of
// the view to the index of the same element in `source`.
void expect_view(const Tensor& source, const Tensor& view, const Shape& sizes,
                 const std::function<Position(const Position&)>& origin) {
  ASSERT_EQ(view.sizes(), sizes);
  EXPECT_TRUE(view.is_view_of(source));
  EXPECT_EQ(view.dtype(), source.dtype());
  std::vector<double> wanted;
  if (sizes.product() > 0) {
    Dims index = Dims::filled(sizes.size(), 0);
    while (true) {
      wanted.push_back(at(source, origin(index.vec())));
      int d = sizes.size() - 1;
      while (d >= 0 && ++index[d] == sizes[d]) index[d--] = 0;
      if (d < 0) break;
    }
  }
  EXPECT_EQ(elements(view), wanted);
}

class ViewsTest : public ::testing::TestWithParam<Layout> {
 protected:
  // Runs `check` with a [3, 4, 5] tensor of the layout on the CPU and the last device.
  static void everywhere(const std::function<void(const Tensor&)>& check) {
    std::vector<Device> places = all_places();
    if (places.size() > 2) places.erase(places.begin() + 1, places.end() - 1);
    for (const Device place : places) {
      for (const DType dtype : {f32, i64, u8, bf16}) {
        SCOPED_TRACE(::testing::Message() << dtype << " on " << place);
        check(patterned(GetParam(), dtype, place));
      }
    }
  }
};

TEST_P(ViewsTest, Transpose) {
  everywhere([](const Tensor& t) {
    expect_view(t, t.transpose(0, -1), {5, 4, 3}, [](const Position& p) {
      return Position{p[2], p[1], p[0]};
    });
    expect_view(t, t.permute({2, 0, 1}), {5, 3, 4}, [](const Position& p) {
      return Position{p[1], p[2], p[0]};
    });
    expect_view(t, t.movedim(0, -1), {4, 5, 3}, [](const Position& p) {
      return Position{p[2], p[0], p[1]};
    });
    expect_view(t, t.movedim({0, 1}, {2, 0}), {4, 5, 3}, [](const Position& p) {
      return Position{p[2], p[0], p[1]};
    });
  });
}

TEST_P(ViewsTest, Slice) {
  everywhere([](const Tensor& t) {
    expect_view(t, t.slice(2, 1, 5, 2), {3, 4, 2}, [](const Position& p) {
      return Position{p[0], p[1], 1 + 2 * p[2]};
    });
    expect_view(t, t.slice(1, -3, -1), {3, 2, 5}, [](const Position& p) {
      return Position{p[0], p[1] + 1, p[2]};
    });
    EXPECT_EQ(t.slice(0, 2, 1).sizes(), (Shape{0, 4, 5}));
    EXPECT_EQ(t.slice(0, -100, 100).sizes(), (Shape{3, 4, 5}));
    EXPECT_EQ(t.slice(0, 0, 3, INT64_MAX).sizes(), (Shape{1, 4, 5}));
    expect_view(t, t.narrow(1, 1, 2), {3, 2, 5}, [](const Position& p) {
      return Position{p[0], p[1] + 1, p[2]};
    });
    expect_view(t, t.select(1, -1), {3, 5}, [](const Position& p) {
      return Position{p[0], 3, p[1]};
    });
    expect_view(t, t[2][1], {5}, [](const Position& p) { return Position{2, 1, p[0]}; });
  });
}

TEST_P(ViewsTest, SqueezeAndExpand) {
  everywhere([](const Tensor& t) {
    const Tensor wide = t.unsqueeze(1).unsqueeze(-1);
    expect_view(t, wide, {3, 1, 4, 5, 1}, [](const Position& p) {
      return Position{p[0], p[2], p[3]};
    });
    EXPECT_EQ(wide.squeeze().sizes(), (Shape{3, 4, 5}));
    EXPECT_EQ(wide.squeeze(1).sizes(), (Shape{3, 4, 5, 1}));
    EXPECT_EQ(wide.squeeze({0, -1}).sizes(), (Shape{3, 1, 4, 5}));
    expect_view(t, wide.expand({2, 3, 6, 4, 5, 2}), {2, 3, 6, 4, 5, 2}, [](const Position& p) {
      return Position{p[1], p[3], p[4]};
    });
    EXPECT_EQ(t.narrow(0, 0, 1).expand({-1, 4, -1}).sizes(), (Shape{1, 4, 5}));
    EXPECT_EQ(t.narrow(0, 0, 1).expand({0, 4, 5}).sizes(), (Shape{0, 4, 5}));
  });
}

TEST_P(ViewsTest, DiagonalAndUnfold) {
  everywhere([](const Tensor& t) {
    expect_view(t, t.diagonal(), {5, 3}, [](const Position& p) {
      return Position{p[1], p[1], p[0]};
    });
    expect_view(t, t.diagonal(-1, 1, 2), {3, 3}, [](const Position& p) {
      return Position{p[0], p[1] + 1, p[1]};
    });
    expect_view(t, t.diagonal(2, 0, 2), {4, 3}, [](const Position& p) {
      return Position{p[1], p[0], p[1] + 2};
    });
    EXPECT_EQ(t.diagonal(9).sizes(), (Shape{5, 0}));
    EXPECT_EQ(t.diagonal(-9).sizes(), (Shape{5, 0}));
    expect_view(t, t.unfold(2, 3, 2), {3, 4, 2, 3}, [](const Position& p) {
      return Position{p[0], p[1], 2 * p[2] + p[3]};
    });
  });
}

TEST_P(ViewsTest, ReshapeKeepsTheOrderOfElements) {
  everywhere([](const Tensor& t) {
    const std::vector<double> wanted = elements(t);
    for (const Shape& shape : {Shape{60}, Shape{5, 4, 3}, Shape{3, 20}, Shape{12, 5}, Shape{2, -1},
                               Shape{3, 2, 2, 5, 1}}) {
      const Tensor result = t.reshape(shape);
      EXPECT_EQ(elements(result), wanted) << shape;
    }
    EXPECT_EQ(elements(t.flatten()), wanted);
    EXPECT_EQ(t.flatten(1).sizes(), (Shape{3, 20}));
    EXPECT_EQ(t.flatten(0, 1).sizes(), (Shape{12, 5}));
    expect_view(t, t.unflatten(1, {2, -1}), {3, 2, 2, 5}, [](const Position& p) {
      return Position{p[0], 2 * p[1] + p[2], p[3]};
    });
  });
}

TEST_P(ViewsTest, SplitsIntoChunks) {
  everywhere([](const Tensor& t) {
    const std::vector<Tensor> pieces = t.split(2, 1);
    ASSERT_EQ(pieces.size(), 2U);
    expect_view(t, pieces[1], {3, 2, 5}, [](const Position& p) {
      return Position{p[0], p[1] + 2, p[2]};
    });
    EXPECT_EQ(t.split({1, 4}, 2)[1].sizes(), (Shape{3, 4, 4}));
    EXPECT_EQ(t.split(2, 2)[2].sizes(), (Shape{3, 4, 1}));
    EXPECT_EQ(t.chunk(2, 0)[0].sizes(), (Shape{2, 4, 5}));
    EXPECT_EQ(t.chunk(4, 2).size(), 3U);
    EXPECT_EQ(tensor_split(t, 4, 2)[0].sizes(), (Shape{3, 4, 2}));
    EXPECT_EQ(tensor_split(t, 4, 2).size(), 4U);
    EXPECT_EQ(t.unbind(1).size(), 4U);
    expect_view(t, t.unbind(1)[2], {3, 5}, [](const Position& p) {
      return Position{p[0], 2, p[1]};
    });
  });
}

TEST_P(ViewsTest, FlipsRollsAndRepeats) {
  everywhere([](const Tensor& t) {
    const auto expect_copy = [&](const Tensor& result, const Shape& sizes, auto origin) {
      ASSERT_EQ(result.sizes(), sizes);
      EXPECT_FALSE(result.is_view_of(t));
      std::vector<double> wanted;
      for (std::int64_t i = 0; i < sizes[0]; ++i) {
        for (std::int64_t j = 0; j < sizes[1]; ++j) {
          for (std::int64_t k = 0; k < sizes[2]; ++k) wanted.push_back(at(t, origin(i, j, k)));
        }
      }
      EXPECT_EQ(elements(result), wanted);
    };
    using I = std::int64_t;
    expect_copy(t.flip({0, -1}), {3, 4, 5}, [](I i, I j, I k) {
      return Position{2 - i, j, 4 - k};
    });
    expect_copy(t.roll(2, 1), {3, 4, 5}, [](I i, I j, I k) { return Position{i, (j + 2) % 4, k}; });
    expect_copy(t.roll({-1, 7}, {0, 2}), {3, 4, 5}, [](I i, I j, I k) {
      return Position{(i + 1) % 3, j, (k + 3) % 5};
    });
    expect_copy(t.repeat({2, 1, 3}), {6, 4, 15}, [](I i, I j, I k) {
      return Position{i % 3, j, k % 5};
    });
    expect_copy(t.tile({2}), {3, 4, 10}, [](I i, I j, I k) { return Position{i, j, k % 5}; });
    expect_copy(repeat_interleave(t, 2, 1), {3, 8, 5}, [](I i, I j, I k) {
      return Position{i, j / 2, k};
    });
    std::vector<double> rolled = elements(t);
    std::rotate(rolled.rbegin(), rolled.rbegin() + 7, rolled.rend());
    EXPECT_EQ(elements(t.roll(7)), rolled);
    EXPECT_EQ(t.repeat({2, 1, 1, 1}).sizes(), (Shape{2, 3, 4, 5}));
    EXPECT_EQ(t.repeat({0, 1, 1}).sizes(), (Shape{0, 4, 5}));
    EXPECT_FALSE(t.repeat({1, 1, 1}).is_view_of(t));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ViewsTest,
                         ::testing::Values(Layout::contiguous, Layout::transposed, Layout::sliced,
                                           Layout::offset, Layout::expanded),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

TEST(ViewTest, MatrixTransposeDoesNotChangeVectors) {
  EXPECT_EQ(zeros({2, 3}).t().sizes(), (Shape{3, 2}));
  EXPECT_EQ(zeros({2}).t().sizes(), (Shape{2}));
  EXPECT_EQ(zeros({}).t().sizes(), Shape{});
}

// Rows that move in one launch or as two parts, of every element size.
TEST(ViewTest, RollsLargeTensors) {
  const std::vector<Device> places = all_places();
  for (const Device place : {places.front(), places.back()}) {
    for (const DType dtype : {u8, bf16, f32, i64}) {
      for (const Shape& sizes : {Shape{7, 5, 6}, Shape{3, 1000, 17}, Shape{40, 129, 300}}) {
        const Tensor t =
            arange(sizes.product(), {.dtype = i64, .device = place}).to(dtype).view(sizes);
        const Tensor strided = t.transpose(0, 2).contiguous().transpose(0, 2);
        for (int dim = 0; dim < 3; ++dim) {
          const std::int64_t size = sizes[dim];
          for (const std::int64_t shift : {std::int64_t{1}, std::int64_t{-4}, size}) {
            const std::int64_t front = (shift % size + size) % size;
            const Tensor wanted =
                cat({t.narrow(dim, size - front, front), t.narrow(dim, 0, size - front)}, dim);
            ASSERT_TRUE(t.roll(shift, dim).equal(wanted)) << dtype << sizes << dim << " " << shift;
            ASSERT_TRUE(strided.roll(shift, dim).equal(wanted)) << dtype << sizes << dim;
          }
        }
      }
    }
  }
}

TEST(ViewTest, AsAnotherTypeReinterpretsTheBytes) {
  for (const Device place : all_places()) {
    const Tensor words = tensor({0x3f800000, 0x40000000}, {.dtype = i32, .device = place});
    EXPECT_EQ(elements(words.view(f32)), (std::vector<double>{1, 2}));
    const Tensor bytes = words.view(u8);
    EXPECT_EQ(bytes.sizes(), (Shape{8}));
    EXPECT_EQ(elements(bytes), (std::vector<double>{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}));
    EXPECT_EQ(bytes.narrow(0, 4, 4).view(f32).item<float>(), 2.0F);
    EXPECT_TRUE(bytes.is_view_of(words));
    EXPECT_EQ(zeros({3, 4}, {.dtype = i16}).t().t().view(i64).sizes(), (Shape{3, 1}));
  }
}

TEST(ViewTest, EmptyBracesMeanAShape) {
  EXPECT_EQ(zeros({1, 1}).view({}).sizes(), Shape{});
  EXPECT_EQ(zeros({1, 1}).reshape({}).dtype(), f32);
}

TEST(ViewTest, AsStridedCountsFromTheStorage) {
  const Tensor base = arange(10, {.dtype = i32});
  const Tensor view = base.narrow(0, 3, 4).as_strided({2, 2}, {4, 1});
  EXPECT_EQ(elements(view), (std::vector<double>{3, 4, 7, 8}));
  EXPECT_EQ(elements(base.narrow(0, 3, 4).as_strided({2}, {1}, 0)), (std::vector<double>{0, 1}));
}

TEST(ViewTest, WritesThroughViewsReachTheSource) {
  for (const Device place : all_places()) {
    Tensor base = zeros({2, 3}, {.device = place});
    base.t()[1].fill_(5);
    base.diagonal(1).copy_(tensor({7, 8}, {.device = place}));
    EXPECT_EQ(elements(base), (std::vector<double>{0, 7, 0, 0, 5, 8}));
  }
}

}  // namespace
}  // namespace gantry
