#include "launcher/run/output/rank_outputs.hpp"

#include <unistd.h>

#include <cerrno>

#include "core/assert.hpp"

namespace gantry::launcher {

void RankOutputs::reset(std::size_t ranks) {
  pipes_.clear();
  pipes_.resize(ranks);
}

void RankOutputs::watch(int rank, Stream stream, int fd) {
  GANTRY_ASSERT(!pipe(rank, stream), "a rank gets a second pipe for one stream");
  pipe(rank, stream) = UniqueFd(fd);
  loop_.watch_input(fd, [this, rank, stream] { read(rank, stream); });
}

void RankOutputs::read(int rank, Stream stream) {
  const int fd = pipe(rank, stream).get();
  if (fd < 0) return;
  std::array<char, 65536> chunk;
  const ssize_t got = ::read(fd, chunk.data(), chunk.size());
  if (got > 0) {
    output_.receive(rank, stream, {chunk.data(), static_cast<std::size_t>(got)});
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    close(rank, stream);
  }
}

void RankOutputs::close(int rank, Stream stream) {
  UniqueFd& fd = pipe(rank, stream);
  if (fd.get() < 0) return;
  std::array<char, 65536> chunk;
  for (ssize_t got = 0; (got = ::read(fd.get(), chunk.data(), chunk.size())) > 0;) {
    output_.receive(rank, stream, {chunk.data(), static_cast<std::size_t>(got)});
  }
  output_.finish(rank, stream);
  loop_.forget(fd.get());
  fd.reset();
}

void RankOutputs::close(int rank) {
  for (const Stream stream : {Stream::out, Stream::err}) close(rank, stream);
}

}  // namespace gantry::launcher
