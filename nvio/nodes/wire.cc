#include "wire.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "../store/segment.h"

namespace nvio {
namespace {

constexpr std::uint64_t kMostOffset = INT64_MAX;

bool is_path(std::string_view path) {
  return !path.empty() && path.size() < kMaxPath && path.front() == '/' &&
         path.find('\0') == std::string_view::npos;
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Digest proof(std::string_view role, std::span<const std::uint8_t> secret, const Nonce& client,
             const Nonce& manager) {
  std::vector<std::uint8_t> said(role.begin(), role.end());
  said.insert(said.end(), client.begin(), client.end());
  said.insert(said.end(), manager.begin(), manager.end());
  return hmac_sha256(secret, said);
}

template <typename Message>
bool is_ours(const Message& message, std::uint32_t node, const char* magic = kWireMagic) {
  return std::memcmp(message.magic, magic, sizeof kWireMagic) == 0 &&
         message.version == kWireVersion && message.node == node;
}

}  // namespace

std::optional<Request> parse_request(std::span<const std::byte, sizeof(Request)> bytes) {
  Request request{};
  std::memcpy(&request, bytes.data(), sizeof request);
  const auto operation = static_cast<std::uint16_t>(request.operation);
  const bool known = operation >= static_cast<std::uint16_t>(Operation::open) &&
                     operation <= static_cast<std::uint16_t>(Operation::prefetch);
  const std::uint64_t span = std::max<std::uint64_t>(request.payload, request.length);
  if (request.magic != kRequestMagic || !known || (request.flags & ~kKnownFlags) != 0 ||
      request.offset > kMostOffset || span > kMostPayload || request.offset + span > kMostOffset ||
      request.size > kMostOffset || request.node >= kMaxNodes || request.unused != 0) {
    return std::nullopt;
  }
  const bool has_runs = (request.flags & kRuns) != 0;
  if (has_runs && request.operation != Operation::read && request.operation != Operation::write) {
    return std::nullopt;
  }
  const bool is_queued = (request.flags & kQueue) != 0;
  const bool is_plain_write =
      request.operation == Operation::write && (request.flags & (kWindow | kRuns)) == 0;
  if (is_queued && !is_plain_write) return std::nullopt;
  const bool carries =
      has_runs || request.operation == Operation::open || request.operation == Operation::write;
  if (!carries && request.payload != 0) return std::nullopt;
  return request;
}

std::optional<RunsRequest> parse_runs(const Request& request, std::span<const std::byte> payload) {
  const std::size_t bytes = request.operation == Operation::write ? request.length : 0;
  if (payload.size() <= bytes || (payload.size() - bytes) % sizeof(RunOnWire) != 0 ||
      request.offset > kMostOffset - kMostPayload) {
    return std::nullopt;
  }
  RunsRequest found;
  found.runs.resize((payload.size() - bytes) / sizeof(RunOnWire));
  found.bytes = payload.last(bytes);
  std::uint64_t end = 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < found.runs.size(); ++i) {
    RunOnWire run{};
    std::memcpy(&run, payload.data() + i * sizeof run, sizeof run);
    const std::uint64_t begin = run.offset;
    if (begin < end || run.length == 0 || begin + run.length > kMostPayload) return std::nullopt;
    end = begin + run.length;
    total += run.length;
    found.runs[i] = {request.offset + begin, run.length};
  }
  if (total != request.length) return std::nullopt;
  return found;
}

std::vector<std::byte> runs_payload(std::uint64_t offset, std::span<const FileRun> runs,
                                    std::span<const std::byte> bytes) {
  std::vector<std::byte> payload;
  payload.reserve(runs.size() * sizeof(RunOnWire) + bytes.size());
  for (const FileRun& run : runs) {
    const RunOnWire told{static_cast<std::uint32_t>(run.offset - offset),
                         static_cast<std::uint32_t>(run.length)};
    const auto* from = reinterpret_cast<const std::byte*>(&told);
    payload.insert(payload.end(), from, from + sizeof told);
  }
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

std::optional<OpenRequest> parse_open(std::span<const std::byte> payload) {
  OpenBody body{};
  if (payload.size() <= sizeof body) return std::nullopt;
  std::memcpy(&body, payload.data(), sizeof body);
  const std::string_view path = text(payload.subspan(sizeof body));
  if (!is_path(path) || body.access == 0 || (body.access & ~(kReads | kWrites)) != 0 ||
      body.admit > static_cast<std::uint8_t>(Admit::never) ||
      body.sync > static_cast<std::uint8_t>(SyncTo::file) ||
      body.close > static_cast<std::uint8_t>(Close::durable) ||
      body.spread > static_cast<std::uint8_t>(Spread::parts) || body.stripe > kMostStripe) {
    return std::nullopt;
  }
  OpenRequest request;
  request.inode = body.inode;
  request.access = body.access;
  request.settings.admit = static_cast<Admit>(body.admit);
  request.settings.sync = static_cast<SyncTo>(body.sync);
  request.settings.close = static_cast<Close>(body.close);
  request.settings.spread = static_cast<Spread>(body.spread);
  request.settings.bypass_size = body.bypass_size;
  request.settings.stripe = body.stripe;
  request.path = path;
  return request;
}

std::vector<std::byte> open_payload(const OpenRequest& request) {
  const OpenBody body{request.inode,
                      request.settings.bypass_size,
                      request.access,
                      static_cast<std::uint8_t>(request.settings.admit),
                      static_cast<std::uint8_t>(request.settings.sync),
                      static_cast<std::uint8_t>(request.settings.close),
                      static_cast<std::uint8_t>(request.settings.spread),
                      request.settings.stripe};
  std::vector<std::byte> payload(sizeof body + request.path.size());
  std::memcpy(payload.data(), &body, sizeof body);
  std::memcpy(payload.data() + sizeof body, request.path.data(), request.path.size());
  return payload;
}

bool is_hello(const Hello& hello, std::uint32_t node) {
  return is_ours(hello, node) && hello.unused == 0 &&
         (hello.caller == kProcess || (hello.caller < kMaxNodes && hello.caller != node));
}
bool is_welcome(const Welcome& welcome, std::uint32_t node) { return is_ours(welcome, node); }

std::optional<Refusal> parse_refusal(const Welcome& answer, std::uint32_t node) {
  if (!is_ours(answer, node, kRefusalMagic)) return std::nullopt;
  return std::bit_cast<Refusal>(answer);
}

Digest manager_proof(std::span<const std::uint8_t> secret, const Nonce& client,
                     const Nonce& manager) {
  return proof("nvio manager", secret, client, manager);
}

Digest client_proof(std::span<const std::uint8_t> secret, const Nonce& client,
                    const Nonce& manager) {
  return proof("nvio client", secret, client, manager);
}

}  // namespace nvio
