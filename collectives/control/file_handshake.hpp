// The facts about a group's control file that its ranks exchange, and the file's making.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gantry {

// The facts that each rank exchanges, so that the others can watch it and open rank 0's file.
struct FileHandshake {
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t start_time = 0;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::uint64_t number = 0;  // of the file, in the process that created it; from 1
  char path[160] = {};
  char failure[160] = {};
};

// Copies `text` into a field of zeros, cut so that it ends with one.
template <std::size_t Size>
void put_text(char (&field)[Size], std::string_view text) {
  std::memcpy(field, text.data(), std::min(Size - 1, text.size()));
}

// Creates a file of `size` ranks with a complete header. `failure` tells why there is none. The
// caller closes the descriptor.
FileHandshake create_control_file(int size, std::chrono::milliseconds timeout,
                                  std::string_view group);

// Opens rank 0's file through /proc, which only needs the same user, or by its name. Returns −1
// with the reason in errno if that is not the file.
int open_control_file(const FileHandshake& owner);

// Returns the path of a new file of this process in the folder of flight files.
std::string new_control_path();

// Writes the header of a file whose other words are zero. Readers accept the file afterwards.
void write_control_header(void* base, int size, std::chrono::milliseconds timeout,
                          std::string_view group, std::string_view path);

}  // namespace gantry
