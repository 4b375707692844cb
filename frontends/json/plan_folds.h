// The parts of a plan that repeat over towers and devices, folded into ranges and unfolded again.
#pragma once

#include <belfry/frontends/json/values.h>
#include <belfry/graph/plan/placed_graph.h>

namespace belfry {

inline constexpr std::int64_t kMostDevices = 65536, kMostBytes = kMostValueBytes;

/// {"0-511": "sim:0-1", "512": "cpu:0"}: the towers of a range are dealt to its devices in contiguous shares.
std::string json_of_vector(const std::vector<int>& devices, const Cluster& cluster);
std::vector<int> vector_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster, int towers);

/// "sim:0-3,cpu:0".
std::string json_of_devices(const std::vector<int>& devices, const Cluster& cluster);
std::vector<int> devices_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster);

/// "0-511,600".
std::string json_of_numbers(const std::vector<int>& numbers);
std::vector<int> numbers_of(const JsonDocument& d, const JsonValue& v, int limit);

/// {"cores", "unlinked", "links", "devices": [{"devices": "sim:0-3", "space", "streams", "memory", "flops", …}]}; without a
/// space each device is its own. "hosts": 4 beside "devices" stands for them on the hosts 0 to 3.
std::vector<std::string> cluster_entries(const Cluster& cluster);
Cluster cluster_of(const JsonDocument& d, const JsonValue& v);
/// Takes the keys of a cluster out of an object that has others too.
Cluster take_cluster(JsonObject& o);
/// UserError for a link from a memory space to itself, and for a switch that joins one device.
void refuse_idle_links(const JsonDocument& d, const JsonValue& links, const Cluster& cluster);

/// Streams of neighbouring devices with the same name and slots, whose entries differ by a step in the tower alone.
/// Entries [tower, epoch, phase, slot, after] of the first; runs of them that repeat along the towers stand once.
std::vector<std::string> stream_lines(const PlacedGraph& plan);
std::vector<PlanStream> streams_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster);

/// Devices with equal frames.
std::vector<std::string> frame_lines(const PlacedGraph& plan);
std::vector<FrameSize> frames_of(const JsonDocument& d, const JsonValue& v, const Cluster& cluster);

}  // namespace belfry
