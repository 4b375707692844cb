#include <belfry/frontends/session/versions.h>

#include <algorithm>
#include <utility>

namespace belfry {

VersionedStore::VersionedStore(const VersionRules& rules, std::shared_ptr<const NamedTensors> first, Source source)
    : rules_(rules), source_(std::move(source)), state_(std::move(first)), pulled_(static_cast<std::size_t>(rules.workers), -1) {}

/// Whether nobody will be let in any more. Each asynchronous gradient makes a version of its own.
bool VersionedStore::over() const {
  const auto coming = rules_.backup ? 0 : static_cast<std::int64_t>(flight_.size());
  return error_ || ended_ || version_ + coming >= rules_.steps;
}

bool VersionedStore::lets_in(int worker) const {
  if (rules_.backup) return pulled_[static_cast<std::size_t>(worker)] < version_;
  return static_cast<std::int64_t>(flight_.size()) <= rules_.staleness;
}

std::optional<Pulled> VersionedStore::pull(int worker) {
  std::unique_lock lock(mutex_);
  may_pull_.wait(lock, [&] { return over() || lets_in(worker); });
  if (over()) return {};
  std::optional<NamedTensors> batch = source_();
  if (!batch) {
    ended_ = true;
    may_pull_.notify_all();
    may_take_.notify_all();
    return {};
  }
  flight_.push_back({draws_, version_});
  pulled_[static_cast<std::size_t>(worker)] = version_;
  return Pulled{version_, draws_++, state_, std::move(*batch)};
}

void VersionedStore::push(Pushed pushed) {
  std::unique_lock lock(mutex_);
  arrived_.push_back(std::move(pushed));
  may_take_.notify_all();
}

/// If p is applied next, can all others still be, in the order of their versions?
bool VersionedStore::in_time_without(const Pushed& p) const {
  std::vector<std::int64_t> others;
  for (const Flight& f : flight_)
    if (f.draw != p.draw) others.push_back(f.version);
  std::sort(others.begin(), others.end());
  for (std::size_t i = 0; i < others.size(); ++i)
    if (version_ + 1 + static_cast<std::int64_t>(i) > others[i] + rules_.staleness) return false;
  return true;
}

void VersionedStore::land(const Pushed& p) {
  std::erase_if(flight_, [&](const Flight& f) { return f.draw == p.draw; });
}

void VersionedStore::drop_late() {
  for (const Pushed& p : arrived_)
    if (p.version < version_) {
      land(p);
      ++dropped_;
    }
  std::erase_if(arrived_, [&](const Pushed& p) { return p.version < version_; });
}

/// Of what has arrived, in the order of its arrival. With the data at their end no more come than are under way.
bool VersionedStore::choose(std::vector<std::size_t>& chosen) {
  chosen.clear();
  if (!rules_.backup) {
    for (std::size_t i = 0; i < arrived_.size() && chosen.empty(); ++i)
      if (in_time_without(arrived_[i])) chosen.push_back(i);
    return !chosen.empty();
  }
  drop_late();
  auto quorum = static_cast<std::size_t>(rules_.workers - rules_.backup);
  if (ended_) quorum = std::min(quorum, static_cast<std::size_t>(std::count_if(flight_.begin(), flight_.end(), [&](const Flight& f) { return f.version == version_; })));
  if (!quorum || version_ >= rules_.steps || arrived_.size() < quorum) return false;
  for (std::size_t i = 0; i < quorum; ++i) chosen.push_back(i);
  return true;
}

std::vector<Pushed> VersionedStore::take() {
  std::unique_lock lock(mutex_);
  std::vector<std::size_t> chosen;
  may_take_.wait(lock, [&] { return error_ || choose(chosen) || (over() && flight_.empty()); });
  std::vector<Pushed> out;
  if (error_) return out;
  for (std::size_t i : chosen) out.push_back(std::move(arrived_[i]));
  for (std::size_t i = chosen.size(); i-- > 0;) arrived_.erase(arrived_.begin() + static_cast<std::ptrdiff_t>(chosen[i]));
  std::sort(out.begin(), out.end(), [](const Pushed& a, const Pushed& b) { return a.worker < b.worker; });
  taken_.clear();
  for (const Pushed& p : out) taken_.push_back(p.draw);
  return out;
}

void VersionedStore::commit(std::shared_ptr<const NamedTensors> next) {
  std::unique_lock lock(mutex_);
  std::erase_if(flight_, [&](const Flight& f) { return std::find(taken_.begin(), taken_.end(), f.draw) != taken_.end(); });
  state_ = std::move(next);
  ++version_;
  may_pull_.notify_all();
}

void VersionedStore::fail(std::exception_ptr error) {
  std::unique_lock lock(mutex_);
  if (!error_) error_ = std::move(error);
  may_pull_.notify_all();
  may_take_.notify_all();
}

std::exception_ptr VersionedStore::error() const {
  std::unique_lock lock(mutex_);
  return error_;
}

std::int64_t VersionedStore::version() const {
  std::unique_lock lock(mutex_);
  return version_;
}

std::int64_t VersionedStore::dropped() const {
  std::unique_lock lock(mutex_);
  return dropped_;
}

}  // namespace belfry
