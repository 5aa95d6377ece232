// Tensors for other programs: files of models and of NumPy, and memory shared through DLPack.
//
// Files hold no devices: what one device writes, another one loads.
#include <gantry/gantry.hpp>

#include <filesystem>
#include <iostream>

#include <unistd.h>

int main() {
  using namespace gantry;
  if (device_count() < 2) {
    std::cout << "this example needs two devices\n";
    return 77;
  }

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gantry-tour-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);

  // 1. A safetensors file holds tensors by name, and texts.
  const Tensor weight = arange(6, {.dtype = f32, .device = "cuda:0"}).view({2, 3});
  save_safetensors(folder / "model", {{"weight", weight}, {"bias", ones({2}, bf16)}},
                   {{"step", "100"}});
  const auto [tensors, metadata] = load_safetensors(folder / "model", "cuda:1");
  std::cout << tensors.at("weight") << "\nstep " << metadata.at("step") << "\n";

  // 2. A reader lists a file and loads what is asked for.
  const SafetensorsReader reader(folder / "model");
  for (const std::string& name : reader.names()) {
    std::cout << name << ": " << reader.entry(name).dtype_name << ", " << reader.entry(name).bytes
              << " bytes\n";
  }
  std::cout << reader.load("bias", {.dtype = f32, .device = "cuda:0"}) << "\n";

  // 3. NumPy reads this file. A transposed tensor is written as it is, in column-major order.
  save_npy(folder / "weight.npy", weight.t());
  const Tensor loaded = load_npy(folder / "weight.npy", "cuda:1");
  std::cout << loaded.sizes() << ", strides " << loaded.strides() << "\n";

  // 4. Damaged files are errors that tell the reason.
  std::filesystem::resize_file(folder / "weight.npy", 140);
  try {
    (void)load_npy(folder / "weight.npy");
  } catch (const Error& error) {
    const std::string text = error.what();
    std::cout << text.substr(text.find("': ") + 3) << "\n";
  }

  // 5. DLPack shares memory with other libraries of the process; here, with gantry itself.
  DLManagedTensorVersioned* const array = to_dlpack(weight);
  std::cout << "dims: " << dlpack::fields(*array).dl_tensor.ndim << "\n";
  from_dlpack(array).fill_(7);  // takes the array over
  std::cout << "sum: " << weight.sum().item<float>() << "\n";

  std::filesystem::remove_all(folder);
}
// Output:
// [[0., 1., 2.],
//  [3., 4., 5.]]
// [2, 3] f32 cuda:1
// step 100
// weight: F32, 24 bytes
// bias: BF16, 4 bytes
// [1., 1.]
// [2] f32 cuda:0
// [3, 2], strides [1, 3]
// expected 24 bytes of elements for shape [3, 2] of f32, but the file has 12
// dims: 2
// sum: 42
