#include <gantry/extend/parse_number.hpp>
#include <gantry/job/process_identity.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/files/own_folder.hpp"

namespace gantry {
namespace {

constexpr int kMaxProcesses = 1 << 20;

// Reads variables and remembers nothing; every error names the variable and its value.
class Variables {
 public:
  explicit Variables(const EnvironmentReader& read) : read_(read) {}

  std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : read_(name);
    return value == nullptr ? std::string() : std::string(value);
  }
  std::optional<int> number(const char* name, int min, int max) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    return static_cast<int>(env::parse_int(value, name, min, max));
  }
  // A number that must be there because `because` is.
  int required(const char* name, int min, int max, const char* because) const {
    if (const auto value = number(name, min, max)) return *value;
    throw InvalidArgument(
        fmt::format("{}: expected a number, because {}={} is set, but got nothing", name, because,
                    text(because)));
  }

 private:
  const EnvironmentReader& read_;
};

// How one launcher spells a rank; null pointers where it does not say.
struct Spelling {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  const char* node_rank;
  const char* node_count;
};

constexpr Spelling kGlaunch{"glaunch",           "GANTRY_RANK",       "GANTRY_WORLD_SIZE",
                            "GANTRY_LOCAL_RANK", "GANTRY_LOCAL_SIZE", "GANTRY_NODE_RANK",
                            "GANTRY_NODE_COUNT"};
constexpr Spelling kTorchrun{"torchrun",         "RANK",       "WORLD_SIZE",      "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"};
// OMPI_COMM_WORLD_NODE_RANK is the rank within the node, not the node's index.
constexpr Spelling kOpenMpi{"openmpi",
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                            nullptr,
                            nullptr};
constexpr Spelling kHydra{"pmi",   "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                          nullptr, nullptr};
constexpr Spelling kCray{"pmi",   "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE",
                         nullptr, nullptr};
constexpr Spelling kMvapich{"mvapich",
                            "MV2_COMM_WORLD_RANK",
                            "MV2_COMM_WORLD_SIZE",
                            "MV2_COMM_WORLD_LOCAL_RANK",
                            "MV2_COMM_WORLD_LOCAL_SIZE",
                            nullptr,
                            nullptr};

// A launcher's answer, with the names of the variables for error texts.
struct Claim {
  ProcessIdentity identity;
  const char* rank_name;
  const char* size_name;
  bool knows_node;  // says how many processes its node has
};

// Node index and count, where the launcher gives only local numbers.
void derive_nodes(ProcessIdentity& identity) {
  if (identity.local_size == identity.world_size) {
    identity.node_rank = 0;
    identity.node_count = 1;
  } else {
    identity.node_rank = -1;
    identity.node_count = -1;
  }
}

std::optional<Claim> read_claim(const Variables& variables, const Spelling& spelling) {
  const std::string rank_text = variables.text(spelling.rank);
  const std::string size_text = variables.text(spelling.world_size);
  if (rank_text.empty() && size_text.empty()) return std::nullopt;
  // RANK and WORLD_SIZE are everyday words: one alone is not a launcher's.
  if (spelling.source == kTorchrun.source && (rank_text.empty() || size_text.empty())) {
    return std::nullopt;
  }
  Claim claim{{}, spelling.rank, spelling.world_size, false};
  ProcessIdentity& identity = claim.identity;
  identity.source = spelling.source;
  identity.world_size = variables.required(spelling.world_size, 1, kMaxProcesses, spelling.rank);
  identity.rank =
      variables.required(spelling.rank, 0, identity.world_size - 1, spelling.world_size);

  const auto local_size = variables.number(spelling.local_size, 1, identity.world_size);
  const auto local_rank =
      variables.number(spelling.local_rank, 0, local_size.value_or(identity.world_size) - 1);
  claim.knows_node = local_size.has_value();
  identity.local_size = local_size.value_or(identity.world_size);
  identity.local_rank =
      local_rank.value_or(local_size ? identity.rank % *local_size : identity.rank);
  derive_nodes(identity);
  if (const auto nodes = variables.number(spelling.node_count, 1, identity.world_size)) {
    identity.node_count = *nodes;
    identity.node_rank = variables.required(spelling.node_rank, 0, *nodes - 1, spelling.node_count);
  }
  return claim;
}

// Entry `index` of a list such as "4(x2),3": 4 4 3.
std::optional<int> slurm_count(const std::string& list, int index) {
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::string_view entry(list.data() + at, comma - at);
    int repeat = 1;
    if (const auto open = entry.find("(x"); open != std::string_view::npos) {
      if (entry.back() != ')') return std::nullopt;
      repeat = static_cast<int>(env::parse_int(entry.substr(open + 2, entry.size() - open - 3),
                                               "SLURM_STEP_TASKS_PER_NODE", 1, kMaxProcesses));
      entry = entry.substr(0, open);
    }
    const auto count =
        static_cast<int>(env::parse_int(entry, "SLURM_STEP_TASKS_PER_NODE", 1, kMaxProcesses));
    if (index < repeat) return count;
    index -= repeat;
    at = comma + 1;
  }
  return std::nullopt;
}

// First host of a list such as "gpu[003-007,9],login1": gpu003.
std::string slurm_first_host(const std::string& list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host.push_back(list[i]);
      continue;
    }
    const std::size_t close = list.find(']', i);
    if (close == std::string::npos) return {};
    host += list.substr(i + 1, list.find_first_of("-,]", i) - i - 1);
    i = close;
  }
  return host;
}

// Batch scripts and interactive shells have a step id too; Slurm prints it signed or unsigned.
bool is_real_slurm_step(const std::string& step) {
  if (step.empty() ||
      !std::all_of(step.begin(), step.end(), [](unsigned char c) { return std::isdigit(c); })) {
    return false;
  }
  return env::parse_int(step, "SLURM_STEP_ID", 0, std::numeric_limits<std::int64_t>::max()) <=
         0xfffffff0;
}

std::optional<Claim> read_slurm(const Variables& variables) {
  const std::string step = variables.text("SLURM_STEP_ID");
  if (!is_real_slurm_step(step)) return std::nullopt;
  const auto tasks = variables.number("SLURM_STEP_NUM_TASKS", 1, kMaxProcesses);
  if (!tasks || *tasks <= 1) return std::nullopt;
  Claim claim{{}, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true};
  ProcessIdentity& identity = claim.identity;
  identity.source = "slurm";
  identity.world_size = *tasks;
  identity.rank = variables.required("SLURM_PROCID", 0, *tasks - 1, "SLURM_STEP_NUM_TASKS");
  identity.node_count = variables.number("SLURM_STEP_NUM_NODES", 1, *tasks).value_or(1);
  identity.node_rank = variables.number("SLURM_NODEID", 0, identity.node_count - 1).value_or(0);
  identity.local_size =
      identity.node_count == 1
          ? *tasks
          : slurm_count(variables.text("SLURM_STEP_TASKS_PER_NODE"), identity.node_rank)
                .value_or(*tasks / identity.node_count);
  identity.local_rank =
      variables.required("SLURM_LOCALID", 0, identity.local_size - 1, "SLURM_STEP_NUM_TASKS");
  identity.job_id = fmt::format("{}.{}", variables.text("SLURM_JOB_ID"), step);
  return claim;
}

std::string local_address(std::string_view job) {
  return "unix:" + own_socket_path(fmt::format("job-{}", job));
}

// Where the job's store is, if the launcher's variables are enough to agree on a place.
void derive_rendezvous(const Variables& variables, ProcessIdentity& identity) {
  const bool one_node = identity.local_size == identity.world_size;
  if (identity.source == "glaunch") {
    identity.job_id = variables.text("GANTRY_JOB_ID");
  } else if (identity.source == "torchrun" || identity.source == "environment") {
    const std::string run = variables.text("TORCHELASTIC_RUN_ID");
    const std::string host = variables.text("MASTER_ADDR");
    const auto port = variables.number("MASTER_PORT", 1, 65535);
    identity.job_id = run.empty() || run == "none" ? identity.source : run;
    if (port) identity.job_id += fmt::format("-{}", *port);
    if (one_node) {
      if (port) identity.rendezvous = local_address(identity.job_id);
    } else if (!host.empty() && port && variables.text("TORCHELASTIC_USE_AGENT_STORE") != "True") {
      identity.rendezvous = fmt::format("tcp:{}:{}", host, *port);
    }
  } else if (identity.source == "openmpi") {
    identity.job_id = variables.text("PMIX_NAMESPACE");
    if (one_node && !identity.job_id.empty()) identity.rendezvous = local_address(identity.job_id);
  } else if (identity.source == "slurm" || (identity.source == "pmi" && !identity.job_id.empty())) {
    if (one_node) {
      identity.rendezvous = local_address("slurm-" + identity.job_id);
    } else {
      const std::string host = slurm_first_host(variables.text("SLURM_STEP_NODELIST"));
      const auto job = variables.number("SLURM_JOB_ID", 0, std::numeric_limits<int>::max());
      const auto step = variables.number("SLURM_STEP_ID", 0, std::numeric_limits<int>::max());
      if (!host.empty() && job && step) {
        identity.rendezvous =
            fmt::format("tcp:{}:{}", host, 20000 + (std::int64_t{*job} * 7 + *step) % 10000);
      }
    }
  }
  if (const std::string given = variables.text("GANTRY_RDZV"); !given.empty()) {
    identity.rendezvous = given;
  }
}

// A PMIx launcher that sets no other variables tells the rank, but not the number of ranks. Slurm
// may tell that there is one.
bool is_of_pmix_job(const Variables& variables) {
  if (variables.text("PMIX_RANK").empty()) return false;
  return !is_real_slurm_step(variables.text("SLURM_STEP_ID")) ||
         variables.text("SLURM_STEP_NUM_TASKS") != "1";
}

// Takes the ranks of this node from another launcher's variables, if the first one's lack them.
void borrow_node(const std::vector<Claim>& claims, ProcessIdentity& identity) {
  const auto who = std::find_if(claims.begin(), claims.end(),
                                [](const Claim& claim) { return claim.knows_node; });
  if (who == claims.begin() || who == claims.end()) return;
  identity.local_rank = who->identity.local_rank;
  identity.local_size = who->identity.local_size;
  identity.node_rank = who->identity.node_rank;
  identity.node_count = who->identity.node_count;
}

// Takes the address that another launcher's variables give, if the first one's give none: a wrapper
// under mpirun may export MASTER_ADDR and MASTER_PORT. The placement on nodes stays the first's.
void borrow_rendezvous(const Variables& variables, const std::vector<Claim>& claims,
                       ProcessIdentity& identity) {
  for (const Claim& claim : claims) {
    if (!identity.rendezvous.empty()) return;
    ProcessIdentity other = identity;
    other.source = claim.identity.source;
    other.job_id = claim.identity.job_id;
    derive_rendezvous(variables, other);
    if (other.rendezvous.empty()) continue;
    identity.rendezvous = std::move(other.rendezvous);
    if (identity.job_id.empty()) identity.job_id = std::move(other.job_id);
  }
}

void check_agreement(const Claim& chosen, const Claim& other) {
  const auto fail = [&](const char* a_name, int a, const char* b_name, int b) {
    throw InvalidArgument(fmt::format(
        "process identity: expected {} and {} to agree, but got {}={} and {}={}; unset the "
        "variables of the launcher that did not start this process",
        chosen.identity.source, other.identity.source, a_name, a, b_name, b));
  };
  if (chosen.identity.world_size != other.identity.world_size) {
    fail(chosen.size_name, chosen.identity.world_size, other.size_name, other.identity.world_size);
  }
  if (chosen.identity.rank != other.identity.rank) {
    fail(chosen.rank_name, chosen.identity.rank, other.rank_name, other.identity.rank);
  }
}

}  // namespace

ProcessIdentity detect_process_identity(const EnvironmentReader& environment) {
  const EnvironmentReader own = [](const char* name) -> const char* { return secure_getenv(name); };
  const Variables variables(environment ? environment : own);

  const bool hydra = !variables.text(kHydra.local_rank).empty();
  std::vector<Claim> claims;
  bool under_mpi = false;
  for (const Spelling& spelling : {kGlaunch, kOpenMpi, hydra ? kHydra : kCray, kMvapich}) {
    if (auto claim = read_claim(variables, spelling)) {
      under_mpi = under_mpi || spelling.node_count == nullptr;
      claims.push_back(std::move(*claim));
    }
  }
  // Without a job's name glaunch is not there, nor the store that it serves.
  if (!claims.empty() && claims.front().identity.source == "glaunch" &&
      variables.text("GANTRY_JOB_ID").empty()) {
    claims.front().identity.source = "environment";
  }
  if (auto slurm = read_slurm(variables)) {
    // Inside a Slurm job, mpirun starts its daemons with srun: the step its processes see is the
    // daemons', one task a node, and contradicts nothing.
    if (!under_mpi) {
      claims.push_back(std::move(*slurm));
    } else if (Claim& pmi = claims.front(); pmi.identity.source == "pmi" &&
                                            pmi.identity.rank == slurm->identity.rank &&
                                            pmi.identity.world_size == slurm->identity.world_size) {
      // srun --mpi=pmi2: PMI tells the rank, Slurm the rest.
      pmi.identity = std::move(slurm->identity);
      pmi.identity.source = "pmi";
      pmi.knows_node = true;
    }
  }
  if (auto torchrun = read_claim(variables, kTorchrun)) claims.push_back(std::move(*torchrun));
  if (claims.empty()) {
    ProcessIdentity single;
    if (is_of_pmix_job(variables)) {
      single.source = "pmix";
      single.job_id = variables.text("PMIX_NAMESPACE");
    }
    single.rendezvous = variables.text("GANTRY_RDZV");
    single.rendezvous_token = variables.text("GANTRY_RDZV_TOKEN");
    return single;
  }
  for (const Claim& claim : claims) check_agreement(claims.front(), claim);
  ProcessIdentity identity = claims.front().identity;
  identity.rendezvous_token = variables.text("GANTRY_RDZV_TOKEN");
  borrow_node(claims, identity);
  derive_rendezvous(variables, identity);
  // glaunch's own store has no other address.
  if (identity.source != "glaunch") borrow_rendezvous(variables, claims, identity);
  return identity;
}

}  // namespace gantry
