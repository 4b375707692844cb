#include <belfry/frontends/json/plan_folds.h>

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

namespace belfry {

namespace {

std::string range_text(int first, int last) { return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last); }

/// "3" or "3-7"; false for other texts.
bool parse_range(std::string_view text, int& first, int& last) {
  auto number = [&](int& out) {
    auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
    bool fine = status == std::errc{} && out >= 0 && end != text.data();
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return fine;
  };
  if (!number(first)) return false;
  last = first;
  if (text.empty()) return true;
  if (text[0] != '-') return false;
  text.remove_prefix(1);
  return number(last) && text.empty() && last >= first;
}

std::vector<int> devices_in(const JsonDocument& d, const JsonValue& v, const Cluster& cluster) {
  const std::string& text = d.text(v);
  return placed(d, v, [&] {
    std::vector<int> out;
    for (const DeviceId& id : parse_devices(text)) out.push_back(cluster.at(id));
    return out;
  });
}

}  // namespace

// ---------------------------------------------------------------- vectors, devices, numbers

std::string json_of_vector(const std::vector<int>& devices, const Cluster& cluster) {
  LineWriter line;
  for (std::size_t t = 0; t < devices.size();) {
    if (devices[t] < 0) {
      ++t;
      continue;
    }
    // Runs of towers on one device; a range takes as many as dealing gives back: lengths q + 1, then q.
    std::vector<int> group;
    std::set<int> in_group;
    std::size_t at = t, first = 0, last = 0;
    while (at < devices.size() && devices[at] >= 0) {
      std::size_t run = 1;
      while (at + run < devices.size() && devices[at + run] == devices[at]) ++run;
      bool fits = group.empty() || ((run == last || (run + 1 == last && last == first)) && !in_group.contains(devices[at]));
      if (!fits) break;
      if (group.empty()) first = run;
      last = run;
      group.push_back(devices[at]);
      in_group.insert(devices[at]);
      at += run;
    }
    line.add(range_text(static_cast<int>(t), static_cast<int>(at) - 1), json_text(to_string(cluster.ids(group))));
    t = at;
  }
  return line.text();
}

std::vector<int> vector_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster, int towers) {
  std::vector<int> out(static_cast<std::size_t>(towers), -1);
  for (std::size_t i = 0; i < d.object(v, "towers and their devices, as {\"0\": \"cpu:0\", \"1-3\": \"cpu:1\"}").items.size(); ++i) {
    if (v.keys[i] == "note") continue;
    const JsonValue& at = v.items[i];
    int first = 0, last = 0;
    if (!parse_range(v.keys[i], first, last)) d.fail(at, fmt::format("\"{}\" is no range of towers; write \"0\" or \"0-3\"", v.keys[i]));
    if (last >= towers) d.fail(at, fmt::format("there is no tower {}; the plan has {}: belfry place GRAPH --towers {} makes a plan of so many from the graph", last, towers, towers));
    std::vector<int> devices = devices_in(d, at, cluster);
    for (std::size_t k = 0; k < devices.size(); ++k) {
      Range r = share_of(last - first + 1, static_cast<std::int64_t>(devices.size()), static_cast<std::int64_t>(k));
      for (std::int64_t t = first + r.first; t < first + r.past; ++t) {
        int& tower = out[static_cast<std::size_t>(t)];
        if (tower >= 0) d.fail(at, fmt::format("tower {} is assigned twice", t));
        tower = devices[k];
      }
    }
  }
  return out;
}

std::string json_of_devices(const std::vector<int>& devices, const Cluster& cluster) { return json_text(to_string(cluster.ids(devices))); }
std::vector<int> devices_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster) { return devices_in(d, v, cluster); }

std::string json_of_numbers(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(range_text(numbers[i], numbers[end - 1]));
    i = end;
  }
  return json_text(fmt::format("{}", fmt::join(parts, ",")));
}

std::vector<int> numbers_of(const JsonDocument& d, const JsonValue& v, int limit) {
  std::vector<int> out;
  std::string_view rest = d.text(v);
  while (!rest.empty()) {
    auto comma = rest.find(',');
    int first = 0, last = 0;
    if (!parse_range(rest.substr(0, comma), first, last) || last >= limit || static_cast<std::int64_t>(out.size()) > limit) d.fail(v, fmt::format("\"{}\" is no list of numbers below {}; write \"0-3,5\"", v.text, limit));
    for (int i = first; i <= last; ++i) out.push_back(i);
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  return out;
}

// ---------------------------------------------------------------- streams

namespace {

constexpr std::size_t kLongestRun = 64;

StreamEntry moved(StreamEntry e, int towers) {
  e.tower += towers;
  if (e.after >= 0) e.after += towers;
  return e;
}

bool follows(const std::vector<StreamEntry>& a, const std::vector<StreamEntry>& b, int step) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](const StreamEntry& x, const StreamEntry& y) { return moved(x, step) == y; });
}

std::string json_of(const StreamEntry& e) { return fmt::format("[{}, {}, {}, {}, {}]", e.tower, e.epoch, e.phase, e.slot, e.after); }

/// Runs that repeat with a step in the tower stand once.
std::string json_of(const std::vector<StreamEntry>& entries) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < entries.size();) {
    std::size_t length = 1, times = 1;
    for (std::size_t n = 1; n <= kLongestRun && i + 2 * n <= entries.size(); ++n) {
      int step = entries[i + n].tower - entries[i].tower;
      std::size_t count = 1;
      auto repeats = [&](std::size_t k) { return moved(entries[i + k], static_cast<int>(count) * step) == entries[i + count * n + k]; };
      for (;; ++count) {
        std::size_t k = 0;
        if (i + (count + 1) * n > entries.size()) break;
        while (k < n && repeats(k)) ++k;
        if (k < n) break;
      }
      if (count > 1 && count * n > times * length) length = n, times = count;
    }
    std::vector<std::string> run;
    for (std::size_t k = 0; k < length; ++k) run.push_back(json_of(entries[i + k]));
    if (times == 1) out.push_back(run[0]);
    else out.push_back(fmt::format("{{\"times\": {}, \"step\": {}, \"entries\": {}}}", times, entries[i + length].tower - entries[i].tower, json_list(run)));
    i += times == 1 ? 1 : times * length;
  }
  return json_list(out);
}

StreamEntry entry_of(const JsonDocument& d, const JsonValue& v) {
  if (d.array(v).size() != 5) d.fail(v, "is [tower, epoch, phase, slot, after]");
  auto number = [&](std::size_t i, std::int64_t low) { return static_cast<int>(d.integer(v.items[i], low, kMostTowers)); };
  return {number(0, 0), number(1, 0), number(2, 0), number(3, 0), number(4, -1)};
}

std::vector<StreamEntry> entries_of(const JsonDocument& d, const JsonValue& v) {
  std::vector<StreamEntry> out;
  for (const JsonValue& e : d.array(v)) {
    if (e.kind == JsonValue::kArray) {
      out.push_back(entry_of(d, e));
      continue;
    }
    JsonObject o(d, e);
    int times = static_cast<int>(d.integer(o.at("times"), 1, kMostTowers)), step = static_cast<int>(d.integer(o.at("step"), -kMostTowers, kMostTowers));
    std::vector<StreamEntry> run;
    for (const JsonValue& x : d.array(o.at("entries"))) run.push_back(entry_of(d, x));
    o.done();
    if (static_cast<std::int64_t>(run.size()) * times > 1'000'000) d.fail(e, "stands for more than a million entries");
    for (int k = 0; k < times; ++k)
      for (const StreamEntry& x : run) out.push_back(moved(x, static_cast<int>(std::clamp<std::int64_t>(std::int64_t{k} * step, -kMostTowers, kMostTowers))));
  }
  return out;
}

/// The shortest list whose repetition gives the threads.
std::vector<int> period_of(const std::vector<int>& threads) {
  for (std::size_t p = 1; p < threads.size(); ++p) {
    bool fits = true;
    for (std::size_t i = p; i < threads.size() && fits; ++i) fits = threads[i] == threads[i - p];
    if (fits) return {threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(p)};
  }
  return threads;
}

}  // namespace

std::vector<std::string> stream_lines(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < plan.streams.size();) {
    const PlanStream& first = plan.streams[i];
    std::vector<int> devices = {first.device}, threads = {first.thread};
    int step = 0;
    std::size_t end = i + 1;
    for (; end < plan.streams.size(); ++end) {
      const PlanStream &before = plan.streams[end - 1], &s = plan.streams[end];
      int here = s.entries.empty() || before.entries.empty() ? 0 : s.entries[0].tower - before.entries[0].tower;
      if (end > i + 1 && here != step) break;
      if (s.name != first.name || s.slots != first.slots || !follows(before.entries, s.entries, here)) break;
      if (std::find(devices.begin(), devices.end(), s.device) != devices.end()) break;
      step = here;
      devices.push_back(s.device);
      threads.push_back(s.thread);
    }
    LineWriter line;
    line.add("devices", json_of_devices(devices, plan.cluster));
    line.add("name", json_text(first.name));
    if (first.slots) line.add("slots", std::to_string(first.slots));
    line.add("threads", fmt::format("[{}]", fmt::join(period_of(threads), ", ")));
    if (step) line.add("step", std::to_string(step));
    if (!first.entries.empty()) line.add("entries", json_of(first.entries));
    out.push_back(line.text());
    i = end;
  }
  return out;
}

std::vector<PlanStream> streams_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster) {
  std::vector<PlanStream> out;
  std::size_t total = 0;
  for (const JsonValue& e : d.array(v)) {
    JsonObject o(d, e);
    PlanStream stream;
    std::vector<int> devices = devices_of(d, o.at("devices"), cluster), threads;
    stream.name = d.text(o.at("name"));
    if (const JsonValue* s = o.find("slots")) stream.slots = static_cast<int>(d.integer(*s, 0, kMostTowers));
    const JsonValue& given = o.at("threads");
    for (const JsonValue& t : d.array(given)) threads.push_back(static_cast<int>(d.integer(t, 0, 65535)));
    if (threads.empty()) d.fail(given, "names no thread");
    if (threads.size() > devices.size()) d.fail(given, fmt::format("names {} threads for {} devices; one each, or those that repeat", threads.size(), devices.size()));
    int step = 0;
    if (const JsonValue* s = o.find("step")) step = static_cast<int>(d.integer(*s, -kMostTowers, kMostTowers));
    std::vector<StreamEntry> entries;
    if (const JsonValue* s = o.find("entries")) entries = entries_of(d, *s);
    o.done();
    total += (entries.size() + 1) * devices.size();
    if (total > 10'000'000) d.fail(e, "streams stand for more than ten million entries");
    for (std::size_t k = 0; k < devices.size(); ++k) {
      stream.device = devices[k];
      stream.thread = threads[k % threads.size()];
      stream.entries.clear();
      auto by = std::clamp<std::int64_t>(static_cast<std::int64_t>(k) * step, -kMostTowers, kMostTowers);
      for (const StreamEntry& x : entries) stream.entries.push_back(moved(x, static_cast<int>(by)));
      out.push_back(stream);
    }
  }
  return out;
}

// ---------------------------------------------------------------- frames

std::vector<std::string> frame_lines(const PlacedGraph& plan) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < plan.frames.size();) {
    std::vector<int> devices;
    std::size_t end = i;
    for (; end < plan.frames.size() && plan.frames[end] == plan.frames[i]; ++end) devices.push_back(static_cast<int>(end));
    if (plan.frames[i] != FrameSize{}) {
      LineWriter line;
      line.add("devices", json_of_devices(devices, plan.cluster));
      line.add("kept", std::to_string(plan.frames[i].kept));
      line.add("transient", std::to_string(plan.frames[i].transient));
      if (plan.frames[i].tail) line.add("tail", std::to_string(plan.frames[i].tail));
      out.push_back(line.text());
    }
    i = end;
  }
  return out;
}

std::vector<FrameSize> frames_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster) {
  std::vector<FrameSize> out(cluster.devices.size());
  std::set<int> named;
  for (const JsonValue& e : d.array(v)) {
    JsonObject o(d, e);
    std::vector<int> devices = devices_of(d, o.at("devices"), cluster);
    FrameSize size{d.integer(o.at("kept"), 0, kMostBytes), d.integer(o.at("transient"), 0, kMostBytes)};
    if (const JsonValue* tail = o.find("tail")) size.tail = d.integer(*tail, 0, kMostBytes);
    o.done();
    for (int i : devices) {
      if (!named.insert(i).second) d.fail(e, fmt::format("the frames of {} are named twice", to_string(cluster.devices[static_cast<std::size_t>(i)].id)));
      out[static_cast<std::size_t>(i)] = size;
    }
  }
  return out;
}

}  // namespace belfry
