// Kernels of the program that use PeerView, from one source: view_kernels.inl is compiled by nvcc
// where there is one, else by the host's compiler.
#pragma once

#include <cstdint>

#include <gantry/collectives/channel.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace view_kernels {

// out = relu(the sum of all ranks' f32 [rows, columns] in the window + bias[columns]), in rank
// order, by `blocks` blocks. Waits for all ranks before and behind it.
void fused(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& bias,
           const gantry::Tensor& out, int blocks, int threads);
// In each of `rounds`, writes a number to the window's first f32 elements of the next rank, signals
// it, waits for the previous rank's signal, and checks its number. wrong[0] += the differences.
void ring(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& wrong,
          int rounds);
// Every thread of every block signals the next rank on one channel, then takes one signal of the
// previous rank. taken[thread of the launch] = 1.
void crowd(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& taken,
           int blocks, int threads);
// Thread 0 waits for the previous rank; the last thread signals the next rank. taken[0] = 1.
void roles(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& taken,
           int threads);
// Puts n elements of `from` (u8, i32 or f64) behind element `offset` of the next rank's tensor.
void put(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& from,
         std::int64_t offset, std::int64_t n);
// All ranks' `n` elements of `mine` (u8, f32 or f64), in rank order, to `all`, by packets: the
// window has 2 * size * PeerView::ll_bytes() bytes. Repeats it with flags first, first + 1, …
void gather_ll(const gantry::Stream& stream, const gantry::Window& window,
               const gantry::Tensor& mine, const gantry::Tensor& all, int rounds, int first);
// Rank 0 signals rank 1 `signals` times; rank 1 takes `waits`. taken[0] = the waits that succeeded.
void counts(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& taken,
            int signals, int waits);
// Waits for `rank` on `channel`. taken[0] = 1, or -1 if wait() returns false.
void wait(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& taken,
          int rank, int channel);
// Signals `rank` on `channel`.
void signal(const gantry::Stream& stream, const gantry::Window& window, int rank, int channel);
// All blocks meet `rounds` times. results[thread of the launch] = the barriers that succeeded.
void meet(const gantry::Stream& stream, const gantry::Window& window, const gantry::Tensor& results,
          int blocks, int threads, int rounds);

}  // namespace view_kernels
