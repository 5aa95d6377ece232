// Streams and events: the order of work, and the time that it takes.
//
// Work of one stream runs in the order of submission. Work of two streams has no order until an
// event makes one. Build and run: docs/reference/build.md; devices may be simulated.
#include <gantry/gantry.hpp>

#include <iostream>

int main() {
  using namespace gantry;
  const Tensor input = arange(1 << 16, {.dtype = f32, .device = "cuda:0"});

  // 1. A stream from the pool becomes the thread's current stream for one scope.
  const Stream side = Stream::from_pool("cuda:0");
  const Stream main_stream = Stream::current("cuda:0");
  Tensor squares;
  {
    // 2. The side stream waits for the input, which the main stream fills.
    side.wait(main_stream);
    const StreamGuard guard(side);
    squares = input * input;
  }
  std::cout << "the guard is over: " << (Stream::current("cuda:0") == main_stream) << "\n";

  // 3. An event marks the end of the work so far. The main stream waits for it on the device; the
  //    host does not.
  const Event done = side.record();
  done.wait(main_stream);
  const Tensor sum = (squares - input).sum();

  // 4. The block of `squares` belongs to the side stream. This use of another stream is told to
  //    the allocator, so that the block is not reused too early.
  squares.record_stream(main_stream);

  // 5. item() waits for the current stream, and for nothing else.
  std::cout << "sum: " << sum.item<double>() << "\n";
  std::cout << "side stream has finished: " << side.query() << "\n";

  // 6. Events with timing measure the device, not the host.
  Event begin({.timing = true});
  Event end({.timing = true});
  begin.record(main_stream);
  const Tensor roots = squares.sqrt();
  end.record(main_stream);
  end.synchronize();
  std::cout << "took a time: " << (begin.elapsed_ms(end) >= 0) << "\n";
}
// Output:
// the guard is over: 1
// sum: 9.38207e+13
// side stream has finished: 1
// took a time: 1
