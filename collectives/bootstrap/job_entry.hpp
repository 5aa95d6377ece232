#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gantry/extend/store.hpp>

namespace gantry {

class JobConnection;

// Note [Jobs without a launcher]
// In an elastic job that no launcher describes, all processes are started with the same arguments,
// also those that replace another one. So the store tells a process whether it is of the job's
// start or a replacement. Below gantry/elastic/, beside Note [Joining a job]:
//
//   started       the processes that came to make the first group
//   departed      the processes that left in order
//   replacements  how many replacements came; this numbers them
//   holder/<r>    the newest replacement that got rank r
//   facts         number of ranks and name of the job
//   server        the rank that serves the store; absent if another process does
//
// A process is of the start if its rank has no process yet, and no other process of the start is
// gone. If all processes of a job are gone, the replacements that wait make a group of all ranks.
// The end of the store ends the job. Its processes keep their groups, which cannot grow.

// The connection of a process that entered its job.
struct JobEntry {
  std::shared_ptr<StoreClient> client;
  int replacement = 0;  // its number; 0: it is of the job's start
};

// Enters a job of `size` ranks, of which this process is `rank`; −1: it takes any. `connect_as`
// connects as the process with a number; −1: as an observer. Throws: as `connect_as`.
JobEntry enter_job(const std::function<std::shared_ptr<StoreClient>(int id)>& connect_as, int rank,
                   int size);

// Notes that `rank` serves the store, and ends it with its own end.
void note_serving_rank(Store& store, int rank);
// Reads the rank that serves the store into `job`, of a process that is not of the job's start.
void read_serving_rank(JobConnection& job);

// Writes the number of ranks and the name of the job for processes that come later.
void note_facts(const JobConnection& job);
// Throws: InvalidArgument unless this process has them, too, or they are not written yet.
void compare_facts(const JobConnection& job);

}  // namespace gantry
