#pragma once

namespace gantry::cuda {

/// Lets `peer` reach the stream-ordered memory of `owner`, what is there and what will come.
void open_pool(int owner, int peer);

}  // namespace gantry::cuda
