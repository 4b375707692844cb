#include <belfry/frontends/session/loops.h>

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/executor/joins.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

double LoopCounts::mean_staleness() const {
  double sum = 0, count = 0;
  for (std::size_t s = 0; s < staleness.size(); ++s) {
    sum += static_cast<double>(s) * static_cast<double>(staleness[s]);
    count += static_cast<double>(staleness[s]);
  }
  return count > 0 ? sum / count : 0;
}

std::string LoopCounts::text() const {
  std::string each;
  for (std::size_t s = 0; s < staleness.size(); ++s) each += fmt::format("{}{}: {}", s ? ", " : "", s, staleness[s]);
  return fmt::format("{} updates; staleness {:.2f} in the mean, {} at most ({}); {} gradients dropped", updates, mean_staleness(), most_staleness(), each, dropped);
}

namespace {

const Loops& loops_of(const Session& session) {
  if (!session.strategy().loops) throw UserError(fmt::format("the strategy '{}' has no loops: it trains by steps", session.strategy().name));
  return *session.strategy().loops;
}

/// Another seed for each mini-batch of one version: two of them would drop the same units else. The first keeps the seed.
constexpr std::uint64_t kSeedStride = 0x9E3779B97F4A7C15u;

bool is_seed(const Node& n) { return n.attributes.text("init") == "seed"; }

/// x times a factor, in its own dtype.
void scale(HostTensor& x, double factor) {
  visit_dtype(x.dtype(), [&]<class T>() {
    for (T& e : x.data<T>()) e = static_cast<T>(static_cast<double>(e) * factor);
  });
}

struct Room {
  std::int64_t bytes = 0, memory = 0;
};

}  // namespace

TrainingLoops::TrainingLoops(Session& session, LoopOptions options)
    : session_(session), loops_(loops_of(session)), options_(std::move(options)), cut_(cut_updates(session.training_graph())) {
  refuse_steps_that_stand_still(session.graph());
  refuse_draws_that_repeat(session.training_graph());  // whole: what counts a worker's step is the server's
  if (!session.options().rules.empty()) throw UserError(fmt::format("[{}] placement rules do not reach into loops: each worker has one device, and the servers have the variables", session.strategy().name));
  check_averages();
  for (const std::string& name : options_.fetches) (session.graph().metrics.contains(name) || !cut_.server.find(name) ? fetches_ : server_fetches_).push_back(name);
  fetches_.insert(fetches_.end(), cut_.pushed.begin(), cut_.pushed.end());
  SessionOptions o = session.options();
  o.cluster = session.cluster();  // one machine for all workers
  const int threads = loops_.threads ? loops_.threads : std::max(1, (o.cores ? o.cores : static_cast<int>(std::thread::hardware_concurrency())) / static_cast<int>(loops_.workers.size()));
  const ParameterServer servers{.devices = {loops_.servers[0]}, .servers = loops_.servers, .towers = 1, .threads = threads};
  SessionOptions of_server = o;
  of_server.recompute = {};
  server_ = std::make_unique<Session>(cut_.server, servers, of_server);
  for (const DeviceId& d : loops_.workers) workers_.push_back(std::make_unique<Session>(cut_.worker, Single{d, 1, loops_.combine, threads}, o));
  check_room();
}

/// Several gradients of one version become one by their mean over rows.
void TrainingLoops::check_averages() const {
  if (!loops_.backup) return;
  for (const std::string& name : cut_.pushed) {
    const TensorType& t = cut_.server.type({cut_.server.find_node(name), 0});
    const bool rows = std::any_of(t.shape.begin(), t.shape.end(), [](const Dim& d) { return d.symbolic(); });
    if (rows || (t.dtype != f32 && t.dtype != f64))
      throw UserError(fmt::format("[{}] an update reads '{}' {}, of which workers cannot take a mean; train with staleness, which joins none", session_.strategy().name, name.substr(name.find('/') + 1), to_string(t)));
  }
}

PlacedGraph TrainingLoops::worker_plan(std::int64_t rows) { return workers_[0]->plan(rows, Mode::run, fetches_); }
PlacedGraph TrainingLoops::server_plan() { return server_->plan(1, Mode::step, server_fetches_); }

/// Each plan fits by itself, or was refused: together they must fit too, with a copy of the variables for each version in use.
void TrainingLoops::check_room() {
  std::map<std::string, Room> rooms;
  std::vector<Room> hosts;
  auto add = [&](const PlacedGraph& plan) {
    const std::vector<DeviceBytes> bytes = device_bytes(plan);
    for (std::size_t d = 0; d < bytes.size(); ++d) {
      const ClusterDevice& device = plan.cluster.devices[d];
      Room& room = rooms[to_string(device.id)];
      room.memory = device.memory;
      room.bytes += bytes[d].total();
      if (device.id.host != 0 || device.id.kind == "gpu" || plan.cluster.host_memory.empty()) continue;
      hosts.resize(1, {0, plan.cluster.host_memory[0]});
      hosts[0].bytes += bytes[d].total();
    }
  };
  add(server_plan());
  for (auto& w : workers_) add(w->plan(options_.rows, Mode::run, fetches_));
  auto variables = [](const Graph& g) {
    std::int64_t out = 0;
    for (NodeId id : g.variables()) out += local_type(g.node(id).types[0], 1).bytes();
    return out;
  };
  std::int64_t gradients = 0;
  for (const std::string& name : cut_.pushed) gradients += local_type(cut_.server.type({cut_.server.find_node(name), 0}), options_.rows).bytes();
  const auto workers = static_cast<std::int64_t>(workers_.size());
  const std::int64_t in_flight = loops_.backup ? 2 * workers : loops_.staleness + 1;  // workers that are joined have their parts beside each other too
  std::int64_t copies = (2 * workers + 1) * variables(cut_.worker);                   // of each worker's version, as it is pulled and as it is loaded, and of the newest
  copies += (in_flight + 2 * workers + 1) * gradients;                                // as they leave a worker, and as they are joined
  copies += variables(session_.training_graph());                                     // what the session had before
  if (!hosts.empty()) {
    hosts[0].bytes += copies;
    rooms["the host"] = hosts[0];
  }
  for (const auto& [name, room] : rooms)
    if (room.bytes > room.memory)
      throw UserError(fmt::format("the loops do not fit: {} needs {} bytes for all workers and servers, but has {}; take a smaller batch, fewer workers{}", name, room.bytes, room.memory, loops_.backup ? "" : ", or less staleness, each update of which may keep a set of gradients"));
}

std::string TrainingLoops::promise() const {
  const auto n = loops_.workers.size();
  if (loops_.backup)
    return fmt::format("{} workers, of which an update takes the first {} gradients of its version and drops the others; not reproducible: who is first is up to timing", n, n - static_cast<std::size_t>(loops_.backup));
  return fmt::format("{} worker{}, asynchronous, staleness at most {}; {}", n, n == 1 ? "" : "s", loops_.staleness,
                     n == 1 && loops_.staleness == 0 ? "reproducible, since one gradient is applied after the other" : "not reproducible: which version a gradient is computed from, and when it is applied, is up to timing");
}

// ---------------------------------------------------------------- the loops

std::shared_ptr<const NamedTensors> TrainingLoops::snapshot() {
  auto out = std::make_shared<NamedTensors>();
  const Graph& g = workers_[0]->training_graph();
  for (NodeId id : g.variables()) {
    const std::string& name = g.node(id).name;
    Session& holder = cut_.server.find_node(name) >= 0 ? *server_ : session_;  // what no update needs stays where it was
    out->insert_or_assign(name, holder.variable(name));
  }
  return out;
}

void TrainingLoops::work(int worker, VersionedStore& store) {
  Session& mine = *workers_[static_cast<std::size_t>(worker)];
  try {
    while (std::optional<Pulled> pulled = store.pull(worker)) {
      if (options_.before) options_.before(worker, pulled->version);
      mine.load_state(*pulled->state);
      if (const auto extra = static_cast<std::uint64_t>(pulled->draw - pulled->version))
        for (NodeId id : mine.training_graph().variables())
          if (const Node& n = mine.training_graph().node(id); is_seed(n))
            mine.load_state({{n.name, HostTensor::scalar(static_cast<std::int64_t>(static_cast<std::uint64_t>(pulled->state->at(n.name).item<std::int64_t>()) + extra * kSeedStride))}});
      Results r = mine.run(pulled->batch, fetches_);
      store.push({worker, pulled->version, pulled->draw, rows_of(cut_.worker, pulled->batch), r.all()});
    }
  } catch (...) {
    store.fail(std::current_exception());
  }
}

/// What the server is fed: of one gradient itself, of several their sum along the fixed tree, by the rows of each.
NamedTensors TrainingLoops::joined(const std::vector<Pushed>& pushed) const {
  NamedTensors out;
  std::int64_t rows = 0;
  for (const Pushed& p : pushed) rows += p.rows;
  const bool even = std::all_of(pushed.begin(), pushed.end(), [&](const Pushed& p) { return p.rows == pushed[0].rows; });
  const int count = static_cast<int>(pushed.size());
  for (const std::string& name : cut_.pushed) {
    if (count == 1) {
      out.insert_or_assign(name, pushed[0].values.at(name));
      continue;
    }
    std::vector<HostTensor> parts;
    std::vector<const std::byte*> data;
    for (const Pushed& p : pushed) {
      parts.push_back(p.values.at(name));
      if (!even && loops_.combine == Combine::global_mean) scale(parts.back(), static_cast<double>(p.rows) * count / static_cast<double>(rows));
    }
    JoinRequest request{loops_.combine == Combine::tower_sum ? "sum" : "mean", 0, count, count, {}};
    for (int i = 0; i < count; ++i) request.parts.push_back({i, i + 1, parts[0].type()});
    for (const HostTensor& t : parts) data.push_back(t.raw());
    HostTensor sum(parts[0].dtype(), parts[0].shape());
    Join(request, sum.type())(data, sum.raw());
    out.insert_or_assign(name, std::move(sum));
  }
  return out;
}

void TrainingLoops::serve(VersionedStore& store, std::int64_t dropped_before, const std::function<void(const std::vector<Applied>&)>& applied) {
  for (std::vector<Pushed> taken = store.take(); !taken.empty(); taken = store.take()) {
    const NamedTensors feeds = joined(taken);
    const Results own = server_->step(feeds, server_fetches_);
    const std::int64_t version = store.version();
    store.commit(snapshot());
    ++counts_.updates;
    counts_.dropped = dropped_before + store.dropped();
    std::vector<Applied> out;
    for (Pushed& p : taken) {
      const auto staleness = static_cast<std::size_t>(version - p.version);
      if (counts_.staleness.size() <= staleness) counts_.staleness.resize(staleness + 1);
      ++counts_.staleness[staleness];
      for (const std::string& name : cut_.pushed) p.values.erase(name);
      p.values.insert(own.all().begin(), own.all().end());
      out.push_back({Results(std::move(p.values)), p.rows, version - p.version});
    }
    if (applied) applied(out);
  }
}

namespace {

void start_all(std::vector<std::jthread>& threads, std::size_t workers, const std::function<void(int)>& work) {
  try {
    for (std::size_t w = 0; w < workers; ++w) threads.emplace_back([&work, w] { work(static_cast<int>(w)); });
  } catch (const std::system_error& e) {
    throw UserError(fmt::format("of the threads of {} workers this process gets {} ({}): raise its limit (ulimit -u), or take fewer workers", workers, threads.size(), e.what()));
  }
}

}  // namespace

void TrainingLoops::run(const VersionedStore::Source& source, std::int64_t steps, const std::function<void(const std::vector<Applied>&)>& applied) {
  {
    State mine;
    for (NodeId id : cut_.server.variables()) mine.insert_or_assign(cut_.server.node(id).name, session_.variable(cut_.server.node(id).name));
    server_->load_state(mine);
  }
  const std::int64_t dropped = counts_.dropped;
  VersionedStore store({static_cast<int>(workers_.size()), loops_.staleness, loops_.backup, steps}, snapshot(), source);
  {
    const std::function<void(int)> loop = [this, &store](int worker) { work(worker, store); };
    std::vector<std::jthread> threads;
    try {
      start_all(threads, workers_.size(), loop);
      serve(store, dropped, applied);
    } catch (...) {
      store.fail(std::current_exception());
    }
  }
  counts_.dropped = dropped + store.dropped();
  if (server_->state_after() != StateAfter::torn) session_.load_state(server_->state());
  if (auto error = store.error()) std::rethrow_exception(error);
}

}  // namespace belfry
