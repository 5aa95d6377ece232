// Kernels as a user writes them, from one source: own_kernels.inl is compiled by nvcc where there
// is one, else by the host's compiler.
#pragma once

#include <cstdint>

#include <gantry/kernels/launch.hpp>
#include <gantry/kernels/philox.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/uses.hpp>

namespace own {

// out[i] = 3 * i + 1.
void fill(const gantry::Stream& stream, std::int64_t n, std::int64_t* out);
// Adds alpha * x to y; y is a tensor that `uses` names.
void axpy(const gantry::Stream& stream, const gantry::Tensor& y, const gantry::Tensor& x,
          float alpha);
// Of n calls the last three write their index.
void write_last_three(const gantry::Stream& stream, std::int64_t n, std::int64_t* out);
// out[flat_index] = the position of each thread as one number.
void positions(const gantry::Stream& stream, gantry::Grid grid, gantry::BlockSize block,
               std::int64_t* out);
// out[b] = the sum of the elements of block b, by a tree in shared memory.
void block_sums(const gantry::Stream& stream, std::int64_t blocks, std::int64_t threads,
                const std::int64_t* in, std::int64_t n, std::int64_t* out);
// Inclusive scan of one block's elements: two barriers in each of log2(n) steps.
void block_scan(const gantry::Stream& stream, std::int64_t threads, const std::int64_t* in,
                std::int64_t* out);
// counts[value % 16] += 1, and *total += value.
void histogram(const gantry::Stream& stream, std::int64_t n, std::int32_t* counts, double* total);
// Writes n Philox words, `blocks` of each offset from `at` on.
void draw_words(const gantry::Stream& stream, std::int64_t n, const gantry::PhiloxPosition& at,
                std::int64_t blocks, float* out);
// Writes the offsets of three shared arrays, in bytes from the first.
void shared_layout(const gantry::Stream& stream, std::int64_t* out);
// Each thread of a block asks for `count` shared doubles, of `bytes` in all.
void take_shared(const gantry::Stream& stream, std::int64_t count, std::size_t bytes,
                 std::int64_t* out);
// Waits for barriers, one more in threads below `most` than in the others.
void uneven_barriers(const gantry::Stream& stream, std::int64_t threads, std::int64_t most);
// On a simulated device: thread `thrower` throws behind the first barrier.
void throw_in_thread(const gantry::Stream& stream, std::int64_t threads, std::int64_t thrower,
                     std::int32_t* alive);
// On a simulated device: call `thrower` throws.
void throw_in_loop(const gantry::Stream& stream, std::int64_t n, std::int64_t thrower,
                   std::int64_t* out);

}  // namespace own
