#include "trace_reader.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../system/crc32c.h"

namespace nvio {
namespace {

bool lies_in_view(const TraceCall& call, const Trace& trace) {
  if (call.ranks >= trace.views.size() || call.length == 0) return false;
  const auto last = trace.views[call.ranks].offset_of(call.offset + call.length - 1);
  return last && *last < kMostOffset;
}

bool is_sane(const TraceCall& call, const Trace& trace) {
  if (call.kind < TraceKind::open || call.kind > TraceKind::write_view) return false;
  if (call.offset > kMostOffset || call.length > kMostOffset || call.start > kMostTime ||
      call.duration > kMostTime) {
    return false;
  }
  const bool is_of_view = call.kind > TraceKind::end;
  const bool moves = call.kind == TraceKind::read || call.kind == TraceKind::write || is_of_view;
  if (moves && call.length > kMostTransfer) return false;
  if (is_of_view) return lies_in_view(call, trace) && trace.files.contains(call.file);
  const bool is_mpi = call.kind <= TraceKind::collective;
  if (is_mpi != (call.ranks != 0)) return false;
  return call.kind == TraceKind::end || trace.files.contains(call.file);
}

bool read_calls(std::span<const std::byte> payload, Trace& trace) {
  if (payload.size() % sizeof(TraceCall) != 0) return false;
  for (std::size_t at = 0; at < payload.size(); at += sizeof(TraceCall)) {
    TraceCall call{};
    std::memcpy(&call, payload.data() + at, sizeof call);
    if (trace.complete || !is_sane(call, trace)) return false;
    trace.complete = call.kind == TraceKind::end;
    trace.calls.push_back(call);
  }
  return true;
}

bool read_file(std::span<const std::byte> payload, Trace& trace) {
  TracedFile file;
  if (payload.size() < sizeof file.facts) return false;
  std::memcpy(&file.facts, payload.data(), sizeof file.facts);
  const std::size_t path = file.facts.path_length;
  const std::size_t source = file.facts.source_length;
  if (payload.size() - sizeof file.facts < path + source || file.facts.number > UINT16_MAX ||
      file.facts.size > kMostOffset) {
    return false;
  }
  const char* names = reinterpret_cast<const char*>(payload.data() + sizeof file.facts);
  file.path.assign(names, path);
  file.source.assign(names + path, source);
  const auto number = static_cast<std::uint16_t>(file.facts.number);
  return trace.files.emplace(number, std::move(file)).second;
}

bool read_view(std::span<const std::byte> payload, Trace& trace) {
  TraceView head{};
  if (payload.size() < sizeof head) return false;
  std::memcpy(&head, payload.data(), sizeof head);
  if (head.displacement > kMostOffset || head.extent > kMostOffset ||
      payload.size() != sizeof head + head.runs * sizeof(TypeMap::Run)) {
    return false;
  }
  if (head.runs == 0) {
    if (head.same >= trace.views.size()) return false;
    trace.views.push_back(trace.views[head.same].from(head.displacement));
    return true;
  }
  TypeMap tile;
  tile.extent = static_cast<std::int64_t>(head.extent);
  tile.runs.resize(head.runs);
  std::memcpy(tile.runs.data(), payload.data() + sizeof head, payload.size() - sizeof head);
  const auto view = View::of(tile, head.displacement);
  if (!view || head.same != trace.views.size()) return false;
  trace.views.push_back(*view);
  return true;
}

}  // namespace

Trace read_trace(std::span<const std::byte> bytes) {
  Trace trace;
  const auto refuse = [](const char* why) {
    Trace none;
    none.problem = why;
    return none;
  };
  if (bytes.size() < sizeof(TraceHeader)) return refuse("it is shorter than a trace's header");
  std::memcpy(&trace.header, bytes.data(), sizeof trace.header);
  if (std::memcmp(trace.header.magic, kTraceMagic, sizeof kTraceMagic) != 0) {
    return refuse("it is no trace of nvio record");
  }
  if (trace.header.version == 0 || trace.header.version > kTraceVersion) {
    return refuse("it is a trace of another version of nvio; record again");
  }
  if (crc32c(&trace.header, offsetof(TraceHeader, checksum)) != trace.header.checksum ||
      trace.header.host[sizeof trace.header.host - 1] != '\0') {
    return refuse("its header is damaged");
  }
  bytes = bytes.subspan(sizeof(TraceHeader));
  for (std::uint32_t sequence = 0; !bytes.empty(); ++sequence) {
    TraceBlock block{};
    if (trace.complete) return refuse("something follows its end");
    if (bytes.size() < sizeof block) break;
    std::memcpy(&block, bytes.data(), sizeof block);
    if (block.magic != kTraceBlockMagic || block.sequence != sequence ||
        block.length > kMostBlock || block.length % 8 != 0 ||
        crc32c(&block, offsetof(TraceBlock, checksum)) != block.checksum) {
      return refuse("a block of it is damaged");
    }
    bytes = bytes.subspan(sizeof block);
    if (bytes.size() < block.length) break;
    const auto payload = bytes.first(block.length);
    if (crc32c(payload.data(), payload.size()) != block.payload_checksum) {
      return refuse("a block of it is damaged");
    }
    const bool sane = block.type == TraceBlockType::calls  ? read_calls(payload, trace)
                      : block.type == TraceBlockType::file ? read_file(payload, trace)
                      : block.type == TraceBlockType::view ? read_view(payload, trace)
                                                           : false;
    if (!sane) return refuse("it tells of calls that cannot be");
    bytes = bytes.subspan(block.length);
  }
  std::stable_sort(trace.calls.begin(), trace.calls.end(), comes_before);
  return trace;
}

Trace read_trace_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  Trace trace = read_trace(std::as_bytes(std::span(bytes)));
  if (!trace.problem.empty()) trace.problem = path + ": " + trace.problem;
  return trace;
}

}  // namespace nvio
