#include <gantry/tensor/npy.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tensor/exchange/mutations.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::all_dtypes;
using testing::all_places;
using testing::content_of;
using testing::elements;
using testing::file_values;
using testing::Layout;
using testing::patterned;

constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced,
                               Layout::offset,     Layout::expanded,   Layout::zero_dim,
                               Layout::empty};

fs::path data(const std::string& name) { return fs::path(GANTRY_TEST_DATA_DIR) / name; }

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A file of version 1.0 with the given dict and elements.
std::string npy(const std::string& dict, const std::string& elements) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(dict.size() & 0xff);
  text += static_cast<char>(dict.size() >> 8);
  return text + dict + elements;
}

TEST(NpyTest, ReadsTheFilesOfNumpy) {
  const std::pair<const char*, DType> files[] = {
      {"b1", bool_},   {"u1", u8},      {"i1", i8},        {"i2", i16},      {"i4", i32},
      {"i8", i64},     {"f2", f16},     {"f4", f32},       {"f8", f64},      {"big_i2", i16},
      {"big_f4", f32}, {"big_f8", f64}, {"version2", f32}, {"version3", f32}};
  for (const auto& [file, dtype] : files) {
    SCOPED_TRACE(file);
    for (const Device place : all_places()) {
      const Tensor tensor = load_npy(data(file + std::string(".npy")), place);
      EXPECT_EQ(tensor.device(), place);
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.sizes(), (Shape{2, 3}));
      EXPECT_EQ(elements(tensor), file_values(6, dtype));
    }
  }
}

TEST(NpyTest, ReadsEveryShapeOfNumpy) {
  const Tensor fortran = load_npy(data("fortran.npy"));
  EXPECT_EQ(fortran.sizes(), (Shape{2, 3, 4}));
  EXPECT_EQ(fortran.strides(), (Dims{1, 2, 6}));
  EXPECT_EQ(elements(fortran), file_values(24, i32));
  EXPECT_EQ(load_npy(data("scalar.npy")).sizes(), Shape{});
  EXPECT_EQ(elements(load_npy(data("scalar.npy"))), (std::vector<double>{-2}));
  EXPECT_EQ(elements(load_npy(data("vector.npy"))), file_values(5, f32));
  EXPECT_EQ(load_npy(data("empty.npy")).sizes(), (Shape{3, 0, 2}));
}

// The files of NumPy, byte by byte.
TEST(NpyTest, WritesWhatNumpyWrites) {
  const testing::TemporaryFolder folder;
  for (const char* file : {"b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "fortran",
                           "scalar", "vector", "empty"}) {
    SCOPED_TRACE(file);
    const std::string name = file + std::string(".npy");
    for (const Device place : all_places()) {
      save_npy(folder / name, load_npy(data(name), place));
      EXPECT_EQ(content_of(folder / name), content_of(data(name)));
    }
  }
}

TEST(NpyTest, EveryDtypeAndLayoutComesBack) {
  const testing::TemporaryFolder folder;
  for (const Device place : all_places()) {
    for (const DType dtype : all_dtypes()) {
      if (dtype == bf16 || dtype == f8e4m3 || dtype == f8e5m2) continue;
      for (const Layout layout : kLayouts) {
        const Tensor tensor = patterned(layout, dtype, place);
        save_npy(folder / "t.npy", tensor);
        const Tensor back = load_npy(folder / "t.npy");
        EXPECT_EQ(back.sizes(), tensor.sizes());
        EXPECT_EQ(back.dtype(), dtype);
        EXPECT_EQ(elements(back), elements(tensor));
        EXPECT_EQ(elements(from_npy(to_npy(tensor), place)), elements(tensor));
      }
    }
  }
}

TEST(NpyTest, OptionsConvertAndPlace) {
  const Tensor converted = load_npy(data("i4.npy"), {.dtype = bf16, .pinned = true});
  EXPECT_EQ(converted.dtype(), bf16);
  EXPECT_EQ(converted.is_pinned(), empty({1}, {.pinned = true}).is_pinned());
  EXPECT_EQ(elements(converted), file_values(6, f32));
  EXPECT_EQ(load_npy(data("i4.npy"), f64).dtype(), f64);
  EXPECT_ERROR(load_npy(data("i4.npy"), {.device = Device::cuda(1000)}), Error, "");
  GANTRY_REQUIRE_DEVICES(1);
  EXPECT_EQ(elements(load_npy(data("big_f4.npy"), {.dtype = i64, .device = "cuda"})),
            file_values(6, i64));
  EXPECT_ERROR(load_npy(data("i4.npy"), {.device = "cuda:0", .pinned = true}), InvalidArgument,
               "load_npy: expected a CPU tensor for pinned memory");
}

// Device memory goes through buffers of 8 MiB.
TEST(NpyTest, LargeTensorsGoInPieces) {
  const testing::TemporaryFolder folder;
  for (const Device place : {Device::cpu(), device_count() > 0 ? Device::cuda(0) : Device::cpu()}) {
    const Tensor tensor = arange(5'000'003, {.dtype = i32, .device = place});
    save_npy(folder / "t.npy", tensor);
    EXPECT_TRUE(load_npy(folder / "t.npy", place).equal(tensor));
    const Tensor matrix = tensor.narrow(0, 0, 5'000'000).view({5, 1'000'000}).transpose(0, 1);
    const Tensor sliced = matrix.slice(0, 1, 999'999, 1).slice(1, 0, 5, 2);
    save_npy(folder / "t.npy", sliced);
    EXPECT_TRUE(load_npy(folder / "t.npy", place).equal(sliced));
    const Tensor wide = tensor.narrow(0, 0, 1).expand({2, 3'000'000});
    save_npy(folder / "t.npy", wide);
    EXPECT_TRUE(load_npy(folder / "t.npy", place).equal(wide));
    const Tensor flags = tensor.eq(7);
    save_npy(folder / "t.npy", flags.expand({2, flags.numel()}));
    EXPECT_TRUE(load_npy(folder / "t.npy", place).equal(flags.expand({2, flags.numel()})));
  }
}

TEST(NpyTest, BoolsAreNormalized) {
  const Tensor odd = tensor({0, 1, 2, 255}, u8).view(bool_);
  const std::vector<std::byte> bytes = to_npy(odd);
  EXPECT_EQ(std::to_integer<int>(bytes[bytes.size() - 1]), 1);
  const std::string text = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}",
                               std::string("\x00\x02\xff", 3));
  EXPECT_EQ(from_npy(bytes_of(text)).view(u8).to_vector<int>(), (std::vector<int>{0, 1, 1}));
}

TEST(NpyTest, ReadsTheSpellingsOfATypeThatNumpyReads) {
  const auto read = [](const std::string& descr, const std::string& elements) {
    return from_npy(
        bytes_of(npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,)}", elements)));
  };
  const std::string little("\0\0\xa0\x3f", 4);  // 1.25
  const std::string big("\x3f\xa0\0\0", 4);
  for (const char* descr :
       {"'<f4'", "'=f4'", "'f4'", "u'<f4'", "u\"f4\"", "'float32'", "'f'", "'<f'"}) {
    const Tensor t = read(descr, little);
    EXPECT_EQ(t.dtype(), f32) << descr;
    EXPECT_EQ(t.item<float>(), 1.25f) << descr;
  }
  EXPECT_EQ(read("'>f4'", big).item<float>(), 1.25f);
  for (const char* descr : {"'?'", "'|?'", "'b1'", "'<b1'", "'>b1'", "'=b1'", "'|b1'", "'bool'"}) {
    EXPECT_EQ(read(descr, "\1").dtype(), bool_) << descr;
  }
  struct Spelling {
    DType dtype;
    const char* code;
    const char* name;
  };
  for (const auto& [dtype, code, name] :
       {Spelling{u8, "u1", "uint8"}, Spelling{i8, "i1", "int8"}, Spelling{i16, "i2", "int16"},
        Spelling{i32, "i4", "int32"}, Spelling{i64, "i8", "int64"}, Spelling{f16, "f2", "float16"},
        Spelling{f64, "f8", "float64"}}) {
    const std::string zero(element_size(dtype), '\0');
    for (const std::string order : {"", "<", ">", "="}) {
      EXPECT_EQ(read("'" + order + code + "'", zero).dtype(), dtype) << order << code;
    }
    EXPECT_EQ(read(std::string("'") + name + "'", zero).dtype(), dtype) << name;
  }
  const std::string python2 = "{u'descr': u'<f4', u'fortran_order': False, u'shape': (1L,)}";
  EXPECT_EQ(from_npy(bytes_of(npy(python2, little))).item<float>(), 1.25f);
}

TEST(NpyTest, RefusesEveryOtherByteOrder) {
  for (int c = 1; c < 256; ++c) {
    const auto order = static_cast<char>(c);
    if (std::string_view("<>=|'\\\n\r").find(order) != std::string_view::npos) continue;
    for (const std::string code : {"b1", "i4", "f4"}) {
      const std::string file = npy("{'descr': '" + std::string(1, order) + code +
                                       "', 'fortran_order': False, 'shape': (1,)}",
                                   code == "b1" ? "\1" : "abcd");
      EXPECT_THROW((void)from_npy(bytes_of(file)), DTypeError) << c << " " << code;
    }
  }
}

struct BadFile {
  std::string content;
  std::string text;
};

TEST(NpyTest, RefusesMalformedFiles) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";
  const auto shape = [](const std::string& text) {
    return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + text + "}", "abcd");
  };
  const auto type = [](const std::string& text) {
    return npy("{'descr': " + text + ", 'fortran_order': False, 'shape': (1,)}", "abcd");
  };
  ASSERT_EQ(from_npy(bytes_of(npy(good, "abcd"))).numel(), 1);
  ASSERT_EQ(from_npy(bytes_of(shape("(1L, 1)"))).numel(), 1);
  const std::vector<BadFile> files{
      {"", "it does not start as one"},
      {"\x93NUMP", "it does not start as one"},
      {"\x93NUMPX\x01\x01xxxx", "it does not start as one"},
      {std::string("\x93NUMPY\x04\x00", 8), "expected version 1.0, 2.0 or 3.0, but got 4.0"},
      {std::string("\x93NUMPY\x01\x01", 8), "but got 1.1"},
      {std::string("\x93NUMPY\x02\x00\x01", 9), "the file ends before its header"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12),
       "expected a header of at most 65536 bytes, but got 4294967295"},
      {std::string("\x93NUMPY\x01\x00\x50\x00{}", 12),
       "expected a header of 80 bytes, but the file ends after 2"},
      {npy("[1]", ""), "expected a dict at character 0 of the header, but got '[1]'"},
      {npy("", ""), "expected a dict in the header, but it ends"},
      {npy("{", ""), "expected a key in the header, but it ends"},
      {npy("{}", ""), "but there is no 'descr'"},
      {npy("{'descr': '<f4'}", ""), "but there is no 'fortran_order'"},
      {npy("{'descr': '<f4', 'fortran_order': True}", ""), "but there is no 'shape'"},
      {npy("{'a': 1}", ""), "'shape' once, but got 'a'"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", ""), "'shape' once, but got 'descr'"},
      {npy("{'descr' '<f4'}", ""), "expected ':'"},
      {npy("{'descr': '<f4' 'shape': ()}", ""), "expected ',' or '}'"},
      {npy("{'descr': '<f4}", ""), "expected a string that ends"},
      {npy("{'de\\x73cr': '<f4'}", ""), "expected a string without escapes"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", ""), "expected True or False"},
      {npy(good + "x", "abcd"), "expected the end of the header"},
      {shape("(1"), "expected ',' or ')'"},
      {shape("(1,)(2,)"), "expected ',' or '}'"},
      {shape("(1)"), "expected a tuple"},
      {shape("[1]"), "expected a tuple"},
      {shape("(,)"), "expected a size"},
      {shape("(-1,)"), "expected a size that is not negative"},
      {shape("(-0,)"), "expected a size that is not negative"},
      {shape("(99999999999999999999,)"), "expected a size below 2^63"},
      {shape("(1.0,)"), "expected ',' or ')'"},
      {shape("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "expected at most 8 dims, but got 9"},
      {shape("(4294967296, 4294967296)"),
       "expected more than 2^63 bytes of elements for shape [4294967296, 4294967296] of f32, but "
       "the file has 4"},
      {shape("(9223372036854775807,)"), "expected more than 2^63 bytes"},
      {shape("(1000000000000,)"),
       "expected 4000000000000 bytes of elements for shape "
       "[1000000000000] of f32, but the file has 4"},
      {shape("(0, 9223372036854775807, 9223372036854775807)"), "expected 0 bytes of elements"},
      {npy(good, "abc"), "expected 4 bytes of elements for shape [1] of f32, but the file has 3"},
      {npy(good, "abcde"), "expected 4 bytes of elements for shape [1] of f32, but the file has 5"},
      {type("'<c8'"), "but got '<c8'"},
      {type("'<u3'"), "but got '<u3'"},
      {type("'|O'"), "but got '|O'"},
      {type("'|f4'"), "but got '|f4'"},
      {type("'2i4'"), "but got '2i4'"},
      {type("'?b1'"), "but got '?b1'"},
      {type("'<float32'"), "but got '<float32'"},
      {type("'|bool'"), "but got '|bool'"},
      {type("'F4'"), "but got 'F4'"},
      {type("'<'"), "but got '<'"},
      {type("''"), "but got ''"},
      {type("b'<f4'"), "expected a type"},
      {type("uu'<f4'"), "expected a type"},
      {type("'<f4\x1b'"), "but got '<f4\\x1b'"},
      {type("[('a', '<f4')]"), "but got a structured one"},
      {type("[('a', '<f4')"), "expected "},
      {type("3"), "expected a type"}};
  const testing::TemporaryFolder folder;
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.text);
    EXPECT_ERROR(from_npy(bytes_of(file.content)), Error,
                 "from_npy: failed to read the given bytes: ");
    testing::write_file(folder / "bad.npy", file.content);
    EXPECT_ERROR(load_npy(folder / "bad.npy"), Error, file.text);
    EXPECT_ERROR(load_npy(folder / "bad.npy"), Error,
                 "load_npy: failed to read '" + (folder / "bad.npy").string() + "': ");
  }
  EXPECT_THROW((void)load_npy(data("complex.npy")), DTypeError);
  EXPECT_THROW((void)load_npy(data("structured.npy")), DTypeError);
}

TEST(NpyTest, RefusesWhatIsNoFile) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(load_npy(folder / "none.npy"), Error, "none.npy': No such file or directory");
  EXPECT_ERROR(load_npy(folder.path()), Error, "': a directory");
  EXPECT_ERROR(load_npy("/dev/zero"), Error, "'/dev/zero': a device");
}

TEST(NpyTest, RefusesToWriteWhatNumpyDoesNotHave) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(save_npy(folder / "t.npy", zeros({2}, bf16)), DTypeError,
               "save_npy: expected a dtype of NumPy, but got bf16; convert it with to(f32), or use "
               "save_safetensors");
  EXPECT_ERROR(to_npy(zeros({2}, bf16)), DTypeError, "to_npy: expected a dtype of NumPy");
  EXPECT_ERROR(save_npy(folder / "t.npy", Tensor()), InvalidArgument,
               "save_npy: expected a defined tensor");
  EXPECT_EQ(testing::files_in(folder.path()), 0U);
}

TEST(NpyTest, AWriteThatFailsLeavesTheOldFile) {
  const testing::TemporaryFolder folder;
  save_npy(folder / "t.npy", zeros({2}));
  const std::string before = content_of(folder / "t.npy");
  EXPECT_ERROR(save_npy(folder / "no" / "t.npy", zeros({2})), Error, "save_npy: failed to write '");
  EXPECT_ERROR(save_npy("/dev/full", zeros({2})), Error,
               "save_npy: failed to write '/dev/full': No space left on device");
  // A file system that is full: no file may grow beyond 1 MiB. Simulated memory is files, too, so
  // all of it is there before.
  std::vector<Tensor> large;
  for (const Device place : all_places()) {
    large.push_back(zeros({6 << 20}, place));
    large.push_back(large.back().view({2, -1}).narrow(1, 0, 3 << 19));
  }
  for (const Tensor& tensor : large) save_npy(folder / "large.npy", tensor);
  fs::remove(folder / "large.npy");
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const Tensor& tensor : large) {
    EXPECT_ERROR(save_npy(folder / "t.npy", tensor), Error, "t.npy': File too large");
    EXPECT_ERROR(save_npy("/dev/full", tensor), Error, "No space left on device");
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content_of(folder / "t.npy"), before);
  EXPECT_EQ(testing::files_in(folder.path()), 1U);
}

// Every outcome is an error, or the elements that the file holds.
TEST(NpyTest, DamagedFilesAreErrorsOrReadAsTheyStand) {
  std::mt19937 random(20260101);
  for (const char* file : {"f4", "big_f8", "b1", "i2", "fortran", "scalar", "empty", "version2"}) {
    const std::string good = content_of(data(file + std::string(".npy")));
    int loaded = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string bad = testing::mutated(good, random);
      Tensor tensor;
      try {
        tensor = from_npy(bytes_of(bad));
      } catch (const Error&) {
        continue;
      }
      ++loaded;
      // In the file's order of elements and, perhaps, of bytes.
      const Tensor dense = tensor.is_contiguous()
                               ? tensor
                               : tensor.permute(tensor.dim() == 3 ? Dims{2, 1, 0} : Dims{1, 0});
      ASSERT_TRUE(dense.is_contiguous()) << bad;
      ASSERT_LE(tensor.nbytes(), bad.size());
      const std::string elements_text = bad.substr(bad.size() - tensor.nbytes());
      std::string read(static_cast<const char*>(dense.data()), dense.nbytes());
      std::string swapped = read;
      for (std::size_t at = 0; at < swapped.size(); at += tensor.element_size()) {
        std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(at),
                     swapped.begin() + static_cast<std::ptrdiff_t>(at + tensor.element_size()));
      }
      if (tensor.dtype() == bool_) {
        for (std::size_t at = 0; at < read.size(); ++at) {
          EXPECT_EQ(read[at] != 0, elements_text[at] != 0);
          EXPECT_LE(read[at], 1);
        }
      } else {
        EXPECT_TRUE(read == elements_text || swapped == elements_text);
      }
    }
    EXPECT_GT(loaded, 0) << file;
    EXPECT_LT(loaded, 3000) << file;
  }
}

class NpyDeviceTest : public testing::DeviceTest {};

TEST_F(NpyDeviceTest, ErrorsLeaveNoMemory) {
  const Device device = Device::cuda(0);
  const testing::TemporaryFolder folder;
  const std::size_t before = memory::allocated(device);
  testing::write_file(folder / "bad.npy",
                      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}", "abcd"));
  EXPECT_ERROR(load_npy(folder / "bad.npy", device), Error, "expected 36 bytes");
  EXPECT_EQ(memory::allocated(device), before);
}

}  // namespace
}  // namespace gantry
