// Maps the memory that an inherited descriptor names, and obeys lines on standard input: read
// OFFSET (prints the byte there), write OFFSET VALUE (prints "written"). Arguments: DESCRIPTOR
// BYTES.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const std::size_t bytes = std::stoull(argv[2]);
    const gantry::NativeStream stream = gantry::Stream::current().native();
    gantry::Driver& driver = gantry::driver();
    const gantry::NativeChunk chunk = driver.import_chunk(0, std::stoi(argv[1]), bytes);
    auto* base = static_cast<std::byte*>(driver.reserve_address(bytes, 0));
    driver.map_chunk(base, bytes, chunk);
    const int self[] = {0};
    driver.set_access(base, bytes, self);
    std::cout << "mapped" << std::endl;
    std::size_t offset = 0;
    for (std::string word; std::cin >> word >> offset;) {
      if (word == "read") {
        std::uint8_t value = 0;
        driver.copy(&value, base + offset, 1, stream);
        driver.synchronize_stream(stream);
        std::cout << static_cast<int>(value) << std::endl;
      } else if (word == "write") {
        int value = 0;
        std::cin >> value;
        driver.fill(base + offset, static_cast<std::uint8_t>(value), 1, stream);
        driver.synchronize_stream(stream);
        std::cout << "written" << std::endl;
      }
    }
    driver.unmap(base, bytes);
    driver.release_chunk(chunk);
    driver.free_address(base, bytes);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
}
