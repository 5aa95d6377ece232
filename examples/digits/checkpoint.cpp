#include "checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace digits {
namespace {

constexpr std::uint64_t kMagic = 0x3174706b63676964;  // "digckpt1"

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::binary);
  const std::uint64_t head[] = {kMagic, static_cast<std::uint64_t>(checkpoint.epoch)};
  file.write(reinterpret_cast<const char*>(head), sizeof head);
  for (const gantry::Tensor& tensor : checkpoint.state) {
    const std::vector<float> values = tensor.to_vector<float>();
    const std::uint64_t bytes = values.size() * sizeof(float);
    file.write(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(bytes));
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + unfinished);
  std::filesystem::rename(unfinished, path);
}

std::optional<Checkpoint> read_checkpoint(const std::string& path,
                                          const std::vector<gantry::Tensor>& shapes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::uint64_t head[2] = {};
  file.read(reinterpret_cast<char*>(head), sizeof head);
  bool good = file && head[0] == kMagic;
  Checkpoint checkpoint{static_cast<int>(head[1]), {}};
  for (const gantry::Tensor& shape : shapes) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    std::uint64_t bytes = 0;
    good = good && file.read(reinterpret_cast<char*>(&bytes), sizeof bytes) &&
           bytes == values.size() * sizeof(float) &&
           file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
    if (good) checkpoint.state.push_back(gantry::tensor(values).view(shape.sizes()));
  }
  if (!good || file.peek() != std::ifstream::traits_type::eof()) {
    throw std::runtime_error(path + ": expected a checkpoint of this model");
  }
  return checkpoint;
}

}  // namespace digits
