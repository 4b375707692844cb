#include <belfry/graph/device_id.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/graph/graph.h>

namespace belfry {

namespace {

/// "cuda:1", "GPU:1" and "gpu" as devices are written here; empty where it looks like none.
std::string meant_by(std::string_view text) {
  const auto colon = text.find(':');
  const std::vector<std::string> kind = near_names(text.substr(0, colon), {"cpu", "gpu", "sim"});
  const std::string number(colon == text.npos ? "0" : text.substr(colon + 1));
  const bool counts = !number.empty() && number.size() <= 6 && number.find_first_not_of("0123456789") == number.npos;
  return counts && !kind.empty() ? fmt::format("; did you mean {}:{}?", kind[0], number) : "";
}

[[noreturn]] void refuse(std::string_view text) {
  throw UserError(fmt::format("'{}' is no device; write cpu:0, gpu:1, gpu:0/1, sim:3 or /host:2/gpu:0{}", text, meant_by(text)));
}

constexpr std::size_t kMostListed = 65536;

/// Why 'sim:5-2' and its like are no ranges.
[[noreturn]] void refuse_range(const std::string& item, const DeviceId& first, std::string_view end) {
  const std::string head = to_string(first.whole());
  const auto digits = static_cast<std::size_t>(std::count_if(end.begin(), end.end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (digits < end.size() || end.empty())
    throw UserError(fmt::format("'{}' is no device, and no range: behind '-' stands the number of its last one alone, as in {}-{}", item, head, first.index + 1));
  if (first.slice >= 0) throw UserError(fmt::format("'{}' is no device: parts of a GPU have no ranges; name each, as in {}/0,{}/1", item, head, head));
  if (digits > 6) throw UserError(fmt::format("'{}' is no device: numbers have at most six digits, and a range at most {} devices", item, kMostListed));
  if (digits > 1 && end[0] == '0') throw UserError(fmt::format("'{}' is no device: numbers are written without zeros before them", item));
  const std::string kind = head.substr(0, head.rfind(':'));
  throw UserError(fmt::format("'{}' is no device: its range goes backwards; write {}:{}-{}", item, kind, end, first.index));
}

/// Cuts a number of at most six digits off the front, as it is printed: without zeros before it.
bool take_number(std::string_view& text, int& out) {
  std::size_t n = 0;
  while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
  if (n == 0 || n > 6 || (n > 1 && text[0] == '0')) return false;
  std::from_chars(text.data(), text.data() + n, out);
  text.remove_prefix(n);
  return true;
}

/// `whole`: what it is part of, for messages.
DeviceId parsed(std::string_view text, std::string_view whole) {
  DeviceId id;
  std::string_view rest = text;
  if (rest.starts_with("/host:")) {
    rest.remove_prefix(6);
    if (!take_number(rest, id.host) || rest.empty() || rest[0] != '/') refuse(whole);
    rest.remove_prefix(1);
  }
  auto colon = rest.find(':');
  if (colon == rest.npos) refuse(whole);
  id.kind = rest.substr(0, colon);
  if (id.kind != "cpu" && id.kind != "gpu" && id.kind != "sim") refuse(whole);
  rest.remove_prefix(colon + 1);
  if (!take_number(rest, id.index)) refuse(whole);
  if (!rest.empty()) {
    if (rest[0] != '/') refuse(whole);
    rest.remove_prefix(1);
    if (!take_number(rest, id.slice) || !rest.empty()) refuse(whole);
    if (id.kind != "gpu") throw UserError(fmt::format("'{}' is no device: only a GPU has parts; write {}:0,{}:1 for several devices", whole, id.kind, id.kind));
  }
  return id;
}

/// A device, or a range of one host's.
void add_range(const std::string& item, std::vector<DeviceId>& out) {
  const auto dash = item.rfind('-');
  if (dash == item.npos) {
    out.push_back(parse_device(item));
    return;
  }
  if (dash > 0 && item[dash - 1] == ':') throw UserError(fmt::format("'{}' is no device: their numbers begin with 0; write {}0, or a range as {}0-1", item, item.substr(0, dash), item.substr(0, dash)));
  DeviceId first = parsed(std::string_view(item).substr(0, dash), item);
  std::string_view end = std::string_view(item).substr(dash + 1);
  const std::string_view number = end;
  int last = 0;
  if (!take_number(end, last) || !end.empty() || last < first.index || first.slice >= 0) refuse_range(item, first, number);
  if (static_cast<std::size_t>(last - first.index) >= kMostListed) throw UserError(fmt::format("'{}' names {} devices; a range has at most {}", item, last - first.index + 1, kMostListed));
  for (; first.index <= last; ++first.index) out.push_back(first);
}

/// What is between two commas: of a range of hosts each has what stands behind it.
void add_item(const std::string& item, std::vector<DeviceId>& out) {
  constexpr std::string_view kHost = "/host:";
  const auto end = item.find('/', 1);
  if (!item.starts_with(kHost) || end == item.npos || item.find('-') > end) return add_range(item, out);
  std::string_view hosts = std::string_view(item).substr(kHost.size(), end - kHost.size());
  int first = 0, last = 0;
  if (!take_number(hosts, first) || !hosts.starts_with('-')) refuse(item);
  hosts.remove_prefix(1);
  if (!take_number(hosts, last) || !hosts.empty()) refuse(item);
  if (last < first) throw UserError(fmt::format("'{}' is no device: its range of hosts goes backwards; write {}{}-{}{}", item, kHost, last, first, item.substr(end)));
  std::vector<DeviceId> of_each;
  try {
    add_range(item.substr(end + 1), of_each);
  } catch (const UserError& e) {
    throw UserError(fmt::format("'{}', of each host: {}", item, e.what()));
  }
  if (of_each[0].host != 0) refuse(item);
  const std::size_t all = of_each.size() * static_cast<std::size_t>(last - first + 1);
  if (all > kMostListed) throw UserError(fmt::format("'{}' names {} devices; a range has at most {}", item, all, kMostListed));
  for (int host = first; host <= last; ++host)
    for (DeviceId& id : of_each) id.host = host, out.push_back(id);
}

}  // namespace

std::string to_string(const DeviceId& id) {
  std::string out = id.host ? fmt::format("/host:{}/", id.host) : "";
  out += fmt::format("{}:{}", id.kind, id.index);
  return id.slice < 0 ? out : out + fmt::format("/{}", id.slice);
}

DeviceId parse_device(std::string_view text) { return parsed(text, text); }

std::vector<DeviceId> parse_devices(std::string_view text) {
  std::vector<DeviceId> out;
  std::string kind;
  std::string_view rest = text;
  while (true) {
    auto comma = rest.find(',');
    std::string item(rest.substr(0, comma));
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    if (item.empty() && !text.empty()) throw UserError(fmt::format("'{}' is no device list: nothing stands before or behind one of its commas; leave that comma out, or name a device there", text));
    if (auto colon = item.rfind(':'); colon != item.npos) kind = item.substr(0, colon);
    else if (!kind.empty()) item = kind + ":" + item;
    add_item(item, out);
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::set<DeviceId> there;
  for (const DeviceId& id : out) {
    if (const std::string why = clash(there, id); !why.empty()) throw UserError(fmt::format("'{}': {}{}", text, why, there.contains(id) ? "; name it once, and for several towers on it give --towers 2 or more" : ""));
    there.insert(id);
  }
  return out;
}

std::string clash(const std::set<DeviceId>& there, const DeviceId& id) {
  const auto next = there.lower_bound(id);  // a whole GPU stands right before its slices
  if (next != there.end() && *next == id) return fmt::format("device {} is named twice", to_string(id));
  const bool of_whole = id.slice < 0 && next != there.end() && next->whole() == id;
  if (!of_whole && (id.slice < 0 || !there.contains(id.whole()))) return {};
  return fmt::format("{} and its slice {} are one GPU: name its slices alone, or the whole", to_string(id.whole()), to_string(of_whole ? *next : id));
}

std::string to_string(const std::vector<DeviceId>& ids) {
  struct Run {
    DeviceId first, last;
  };
  std::vector<Run> runs;  // of neighbours on a host
  for (const DeviceId& id : ids) {
    DeviceId next = runs.empty() ? DeviceId{} : runs.back().last;
    ++next.index;
    if (!runs.empty() && id.slice < 0 && id == next) runs.back().last = id;
    else runs.push_back({id, id});
  }
  std::string out;
  for (std::size_t i = 0; i < runs.size();) {
    const auto& [first, last] = runs[i];
    std::size_t hosts = 1;  // that have the same
    const auto each = static_cast<std::size_t>(last.index - first.index + 1);
    auto on = [&](DeviceId id) { return id.host += static_cast<int>(hosts), id; };
    while (i + hosts < runs.size() && (hosts + 1) * each <= kMostListed && runs[i + hosts].first == on(first) && runs[i + hosts].last == on(last)) ++hosts;
    DeviceId shown = first;
    shown.host = hosts > 1 ? 0 : first.host;
    out += out.empty() ? "" : ",";
    if (hosts > 1) out += fmt::format("/host:{}-{}/", first.host, runs[i + hosts - 1].first.host);
    out += to_string(shown);
    if (last != first) out += fmt::format("-{}", last.index);
    i += hosts;
  }
  return out;
}

}  // namespace belfry
