// NCCL on the fake driver's streams: ranks meet in the order of their calls, sums are in an order of its own, and what ranks disagree on is an error.
#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "state_internal.h"

using namespace fake_cuda;

namespace {

struct Part {
  const char* name;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int root;
  ncclComm_t comm;
  CUstream stream;
};
using Group = std::vector<Part>;

/// The n-th group of every rank.
struct Round {
  std::vector<Group> groups;
  std::vector<std::vector<std::vector<unsigned char>>> given;  ///< per rank and part
  std::size_t came = 0;
  Clock clock;
};
struct Clique {
  std::size_t ranks = 0;
  std::vector<ncclComm_t> comms;
  std::deque<Round> rounds;
};

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

bool alike(const Part& a, const Part& b) { return !std::strcmp(a.name, b.name) && a.count == b.count && a.type == b.type && a.root == b.root; }

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  CUctx_st* context = nullptr;
  int rank = 0, looks = 0;           ///< so often it is still in progress when it is asked
  std::size_t next = 0;              ///< round
  std::optional<Group> waiting;      ///< not yet on its stream
  ncclResult_t broken = ncclSuccess;
  bool dead = false;
};

namespace {

std::map<unsigned, std::shared_ptr<Clique>>& cliques() {
  static auto* all = new std::map<unsigned, std::shared_ptr<Clique>>;
  return *all;
}
thread_local Group open_group;
thread_local int depth = 0;

void must_live(ncclComm_t comm) {
  if (!comm || comm->dead) std::fprintf(stderr, "fake_cuda: a communicator is used that is no more\n"), std::abort();
}

template <class T>
void sum(const Round& round, std::size_t part, const Part& mine) {
  const std::size_t ranks = round.given.size();
  for (std::size_t i = 0; i < mine.count; ++i) {
    T total{};
    for (std::size_t k = 1; k <= ranks; ++k) {  // the first rank last
      T x;
      std::memcpy(&x, round.given[k % ranks][part].data() + i * sizeof(T), sizeof(T));
      total = k == 1 ? x : static_cast<T>(total + x);
    }
    std::memcpy(static_cast<unsigned char*>(mine.to) + i * sizeof(T), &total, sizeof(T));
  }
}

ncclResult_t compute(const Round& round, const Group& group) {
  for (std::size_t k = 0; k < group.size(); ++k) {
    const Part& p = group[k];
    if (!std::strcmp(p.name, "ncclBroadcast")) {
      const auto& bytes = round.given[static_cast<std::size_t>(p.root)][k];
      std::memcpy(p.to, bytes.data(), bytes.size());
    } else if (std::strcmp(p.name, "ncclReduce") != 0 || p.root == p.comm->rank) {
      if (p.type == ncclFloat32) sum<float>(round, k, p);
      else if (p.type == ncclFloat64) sum<double>(round, k, p);
      else if (p.type == ncclInt32) sum<std::int32_t>(round, k, p);
      else if (p.type == ncclInt64) sum<std::int64_t>(round, k, p);
      else return ncclInvalidArgument;
    }
  }
  return ncclSuccess;
}

/// Two steps of the stream: what the rank gives is taken, and once all have given, what it gets is written.
void enqueue(Call& call, ncclComm_t comm, Group group) {
  Clique& clique = *comm->clique;
  while (clique.rounds.size() <= comm->next) clique.rounds.push_back({std::vector<Group>(clique.ranks), std::vector<std::vector<std::vector<unsigned char>>>(clique.ranks), 0, {}});
  Round& round = clique.rounds[comm->next++];
  const auto rank = static_cast<std::size_t>(comm->rank);
  round.groups[rank] = group;
  CUstream stream = group.front().stream;
  FakeOp give, get;
  give.access.name = get.access.name = "a group of NCCL";
  for (const Part& p : group) {
    if (p.from) give.access.ranges.push_back({p.from, p.count * size_of(p.type), false});
    if (p.to) get.access.ranges.push_back({p.to, p.count * size_of(p.type), true});
  }
  const bool stalls = setting("FAKE_NCCL_STALL", -1) == comm->rank;
  give.ready = [comm, stalls] { return !stalls || comm->dead; };
  give.run = [&round, rank, stream] {
    for (const Part& p : round.groups[rank]) {
      auto& bytes = round.given[rank].emplace_back(p.from ? p.count * size_of(p.type) : 0);
      if (p.from) std::memcpy(bytes.data(), p.from, bytes.size());
    }
    ++round.came;
    join(round.clock, stream->clock);
    return CUDA_SUCCESS;
  };
  get.ready = [comm, &round] { return comm->dead || round.came == round.groups.size(); };
  get.run = [comm, &round, rank, stream] {
    if (comm->dead) return CUDA_SUCCESS;
    for (const Group& other : round.groups)
      if (other.size() != round.groups[0].size() || !std::equal(other.begin(), other.end(), round.groups[0].begin(), alike)) comm->broken = ncclInvalidUsage;
    if (comm->broken == ncclSuccess) comm->broken = compute(round, round.groups[rank]);
    join(stream->clock, round.clock);
    return CUDA_SUCCESS;
  };
  queue(call, stream, std::move(give));
  queue(call, stream, std::move(get));
}

ncclResult_t add(Call& call, Part part) {
  if (call.error) return static_cast<ncclResult_t>(call.error);
  must_live(part.comm);
  if (!depth || !part.stream || part.stream->context != part.comm->context || part.comm->looks) return ncclInvalidUsage;
  if (part.stream->capture) return ncclInvalidUsage;
  open_group.push_back(part);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Call call("ncclGetUniqueId", Needs::start);
  static unsigned last = 0;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &++last, sizeof last);
  return static_cast<ncclResult_t>(call.error);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  Call call("ncclCommInitRankConfig");
  if (call.error) return static_cast<ncclResult_t>(call.error);
  if (!config || config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t) || config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  unsigned number = 0;
  std::memcpy(&number, &id, sizeof number);
  auto& clique = cliques()[number];
  if (!clique) clique = std::make_shared<Clique>();
  clique->ranks = static_cast<std::size_t>(ranks);
  for (ncclComm_t other : clique->comms)
    if (other->rank == rank || other->context == call.context) return ncclInvalidUsage;  // one rank a GPU
  *out = new ncclComm{clique, call.context, rank, 2, 0, {}, ncclSuccess, false};
  clique->comms.push_back(*out);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Call call("ncclCommGetAsyncError", Needs::start);
  must_live(comm);
  if (call.error) comm->broken = static_cast<ncclResult_t>(call.error);
  *state = comm->broken;
  if (*state != ncclSuccess) return ncclSuccess;
  if (comm->looks && comm->clique->comms.size() == comm->clique->ranks) --comm->looks;
  if (comm->looks) *state = ncclInProgress;
  if (!comm->looks && comm->waiting) {
    call.context = comm->context;
    call.error = comm->context->broken;
    enqueue(call, comm, *std::exchange(comm->waiting, {}));
  }
  return ncclSuccess;
}

/// What it has on a stream ends, and computes nothing.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Call call("ncclCommAbort", Needs::start);
  must_live(comm);
  comm->dead = true;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Call call("ncclCommDestroy", Needs::start);
  must_live(comm);
  comm->dead = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Call call("ncclGroupEnd", Needs::start);
  if (--depth) return ncclSuccess;
  Group group = std::exchange(open_group, {});
  if (call.error) return static_cast<ncclResult_t>(call.error);
  if (group.empty()) return ncclInProgress;
  ncclComm_t comm = group.front().comm;
  for (const Part& p : group)
    if (p.comm != comm || p.stream != group.front().stream) return ncclInvalidUsage;  // of the real one's uses, those that Belfry has
  comm->looks = 1 + static_cast<int>(state().random() % 3);
  comm->waiting = std::move(group);
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclAllReduce");
  return op == ncclSum ? add(call, {"ncclAllReduce", from, to, count, type, 0, comm, stream}) : ncclInvalidArgument;
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclReduce");
  return op == ncclSum && (to || root != comm->rank) ? add(call, {"ncclReduce", from, to, count, type, root, comm, stream}) : ncclInvalidArgument;
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call("ncclBroadcast");
  return from || root != comm->rank ? add(call, {"ncclBroadcast", root == comm->rank ? from : nullptr, to, count, type, root, comm, stream}) : ncclInvalidArgument;
}

const char* ncclGetErrorString(ncclResult_t code) {
  constexpr const char* kTexts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
  return code >= 0 && code < 8 ? kTexts[code] : "unknown result code";
}

}  // extern "C"
#endif
