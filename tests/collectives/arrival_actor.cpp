// One rank of the tests of ranks that do not come. The arguments are what it does, in turn.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/process_identity.hpp>
#include <gantry/core/rendezvous.hpp>

using namespace gantry;

namespace {

// Uses the job's store, and says goodbye to it.
void visit_store() {
  const ProcessIdentity identity = detect_process_identity();
  StoreClient(identity.rendezvous, identity.rank).set("visited", "");
}

void act(std::string_view what) {
  if (what == "world") {
    Communicator world = Communicator::world();
    world.host_barrier();
    fmt::print("came\n");
  } else if (what == "store") {
    visit_store();
  } else {
    throw InvalidArgument(fmt::format("unknown command '{}'", what));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) act(argv[i]);
    return 0;
  } catch (const PeerLostError& error) {
    fmt::print("lost rank {}: {}\n", error.rank(), error.what());
    return 3;
  } catch (const TimeoutError& error) {
    fmt::print("timeout: {}\n", error.what());
    return 4;
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    return 1;
  }
}
