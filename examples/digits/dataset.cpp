#include "dataset.hpp"

#include <zlib.h>

#include <charconv>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace digits {

namespace {

constexpr int kPixels = 64;

std::vector<std::string> read_lines(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<std::string> lines;
  char buffer[1024];
  while (gzgets(file.get(), buffer, sizeof buffer) != nullptr) {
    std::string_view line(buffer);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
  }
  int status = Z_OK;
  const char* message = gzerror(file.get(), &status);
  if (status != Z_OK && status != Z_STREAM_END) {
    throw std::runtime_error(path + ": " + message);
  }
  return lines;
}

int parse_field(std::string_view& rest, int limit, const std::string& path, std::size_t line) {
  int value = -1;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (status != std::errc{} || value < 0 || value > limit) {
    throw std::runtime_error(path + ":" + std::to_string(line + 1) + ": expected " +
                             std::to_string(kPixels) + " pixels of 0 to 16 and a label of 0 to 9");
  }
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (!rest.empty() && rest.front() == ',') rest.remove_prefix(1);
  return value;
}

}  // namespace

Split load(const std::string& path, std::uint64_t seed) {
  const std::vector<std::string> lines = read_lines(path);
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string_view rest = lines[i];
    for (int p = 0; p < kPixels; ++p) {
      pixels.push_back(static_cast<float>(parse_field(rest, 16, path, i)) / 16.0f);
    }
    labels.push_back(parse_field(rest, 9, path, i));
  }
  const auto count = static_cast<std::int64_t>(labels.size());
  gantry::Generator generator(gantry::Device::cpu(), seed);
  const gantry::Tensor order = gantry::randperm(count, {}, &generator);
  const Dataset all{gantry::tensor(pixels).view({count, kPixels}).index_select(0, order),
                    gantry::tensor(labels).index_select(0, order)};
  const std::int64_t held_back = count / 5;
  const auto part = [&](std::int64_t begin, std::int64_t length) {
    return Dataset{all.pixels.narrow(0, begin, length).clone(),
                   all.labels.narrow(0, begin, length).clone()};
  };
  return {part(held_back, count - held_back), part(0, held_back)};
}

}  // namespace digits
