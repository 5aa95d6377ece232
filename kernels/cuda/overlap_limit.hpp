#pragma once

namespace gantry::kernels::cuda {

/// The blocks of the largest grid that overlaps: four on each multiprocessor of an H100. See Note
/// [Overlapped launches].
inline constexpr unsigned kMostOverlappedBlocks = 512;

}  // namespace gantry::kernels::cuda
