// The bytes between a process of the job and a node's manager; docs/formats/nvio-wire.md is the
// specification. Pure: no sockets, no trust in a single byte of the input. Little-endian.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../cache/file_run.h"
#include "../settings/settings.h"
#include "../transport/sha256.h"

namespace nvio {

static_assert(std::endian::native == std::endian::little,
              "messages are sent as they stand in memory: port wire.h first");

constexpr char kWireMagic[8] = {'n', 'v', 'i', 'o', 'w', 'i', 'r', 'e'};
constexpr std::uint32_t kWireVersion = 7;
constexpr std::uint32_t kMostPayload = 1 << 20;  // bytes after a request or a reply

using Nonce = std::array<std::uint8_t, 32>;

// The first message: who wants to talk about which job's node.
struct Hello {
  char magic[8];
  std::uint32_t version;
  std::uint32_t node;
  std::uint32_t caller;  // the node whose manager calls, or kProcess
  std::uint32_t unused;  // 0
  Nonce nonce;
};
static_assert(sizeof(Hello) == 56);
constexpr std::uint32_t kProcess = 0xFFFFFFFF;

// The manager's answer; `proof` shows that it knows the job's secret.
struct Welcome {
  char magic[8];
  std::uint32_t version;
  std::uint32_t node;
  Nonce nonce;
  Digest proof;
};
static_assert(sizeof(Welcome) == 80);
// After it the client sends its own proof, 32 bytes. A manager that calls is then answered by a
// reply: error 0, from which on there are lanes (transport/lanes.h), or EALREADY, where the two
// have a connection or are about to.

// In the place of a welcome, and then the end of the connection: the manager has no descriptor left
// for one more peer.
struct Refusal {
  char magic[8];
  std::uint32_t version;
  std::uint32_t node;
  std::uint64_t limit;  // of open files, the manager's
  std::uint64_t peers;  // that it has
  char unused[48];      // zeros
};
static_assert(sizeof(Refusal) == sizeof(Welcome));
constexpr char kRefusalMagic[8] = {'n', 'v', 'i', 'o', 'f', 'u', 'l', 'l'};

enum class Operation : std::uint16_t {
  open = 1,         // payload: OpenBody and the path
  close = 2,        // gives the file's number back
  read = 3,         // `length` bytes at `offset`, at most kMostPayload; they come with the reply
  write = 4,        // the payload, at `offset`; both, of runs (kRuns): see RunOnWire
  size = 5,         // value: the file's size as the job sees it (asked of its home node)
  grow = 6,         // the file is at least `size` long (told to its home node)
  truncate = 7,     // to `size`
  sync = 8,         // what was written to this node is as durable as its store
  write_back = 9,   // what was written to this node is in the file
  drain = 10,       // leave the plain state; value: the real file's size
  activate = 11,    // from now on blocks of the file are cached; `size`: at least as long as this
  step_aside = 12,  // write back, forget, and cache no more of the file
  leave = 13,       // no node caches any more of it: go to the file at once
  prefetch = 14,    // the group at `offset`
};

constexpr std::uint16_t kLarge = 1;   // a piece of a transfer that is large as a whole
constexpr std::uint16_t kRouted = 2;  // open: the job does not go to the file plainly any more
constexpr std::uint16_t kWindow = 4;  // read or write: what CachedFile calls a window
constexpr std::uint16_t kRuns = 8;    // read or write: of many runs of bytes
constexpr std::uint16_t kQueue = 16;  // write: to be answered once it is queued at the manager
constexpr std::uint16_t kKnownFlags = kLarge | kRouted | kWindow | kRuns | kQueue;

struct Request {
  std::uint32_t magic;
  Operation operation;
  std::uint16_t flags;
  std::uint32_t file;     // the manager's number for it, from the reply to `open`
  std::uint32_t payload;  // bytes that follow
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t size;  // the file's, as far as the sender knows
  std::uint32_t node;  // by whose manager it is to be served: who gets it for another passes it on
  std::uint32_t unused;
};
static_assert(sizeof(Request) == 48);
constexpr std::uint32_t kRequestMagic = 0x5152564e;  // "NVRQ"

// One of the runs of a request that has `kRuns`. The payload is a table of them, in order of their
// offsets, and behind it a write's bytes; `length` is how many bytes they have in all.
struct RunOnWire {
  std::uint32_t offset;  // from the request's
  std::uint32_t length;
};
static_assert(sizeof(RunOnWire) == 8);

// What a file's cache is doing at a node.
enum class FileState : std::uint32_t {
  plain = 0,     // nothing is cached at any node: calls go to the file
  draining = 1,  // nothing is cached here yet, and transfers go to the owner of the bytes
  active = 2,
  leaving = 3,  // nothing is cached here any more, transfers go to the owner of the bytes
  left = 4,     // nothing is cached at any node any more: calls go to the file
};

struct Reply {
  std::uint32_t magic;
  std::int32_t error;     // 0 or Linux's errno number
  std::uint32_t payload;  // bytes that follow
  std::uint32_t file;     // open: its number
  std::uint64_t value;    // bytes done, or the size
  std::uint64_t part;     // open: groups in each node's part of the file; 0: striped
  FileState state;        // open, activate
  std::uint32_t unit;     // open: groups that stay together at one node
};
static_assert(sizeof(Reply) == 40);
constexpr std::uint32_t kReplyMagic = 0x5052564e;  // "NVRP"
// A reply of this magic, with nothing else in it, says that the request is still worked on.
constexpr std::uint32_t kWorkingMagic = 0x5752564e;  // "NVRW"
// One of this magic says that the request's node cannot be reached any more; a sentence why
// follows.
constexpr std::uint32_t kLostMagic = 0x4c52564e;  // "NVRL"
constexpr std::size_t kMostWhy = 1024;            // bytes of it

// What `open` says of the file and how it is to be cached, if this is its first opening.
struct OpenBody {
  std::uint64_t inode;
  std::uint64_t bypass_size;
  std::uint32_t access;  // kReads | kWrites
  std::uint8_t admit, sync, close, spread;
  std::uint64_t stripe;  // bytes; 0: this node knows of none
};
static_assert(sizeof(OpenBody) == 32);
constexpr std::uint32_t kReads = 1;
constexpr std::uint32_t kWrites = 2;

struct OpenRequest {
  std::uint64_t inode = 0;
  std::uint32_t access = 0;
  FileSettings settings;
  std::string path;
};

// The header, if it is one that a manager may act on; else nothing, and the connection is to be
// closed: no later byte can be trusted to start a message.
std::optional<Request> parse_request(std::span<const std::byte, sizeof(Request)> bytes);
// The runs of a request that has `kRuns`, and of the payload what follows their table; or nothing.
struct RunsRequest {
  std::vector<FileRun> runs;
  std::span<const std::byte> bytes;
};
std::optional<RunsRequest> parse_runs(const Request& request, std::span<const std::byte> payload);
std::vector<std::byte> runs_payload(std::uint64_t offset, std::span<const FileRun> runs,
                                    std::span<const std::byte> bytes);
std::optional<OpenRequest> parse_open(std::span<const std::byte> payload);
std::vector<std::byte> open_payload(const OpenRequest& request);

bool is_hello(const Hello& hello, std::uint32_t node);
bool is_welcome(const Welcome& welcome, std::uint32_t node);
std::optional<Refusal> parse_refusal(const Welcome& answer, std::uint32_t node);
// What each end shows of the secret: an HMAC over its role and both nonces.
Digest manager_proof(std::span<const std::uint8_t> secret, const Nonce& client,
                     const Nonce& manager);
Digest client_proof(std::span<const std::uint8_t> secret, const Nonce& client,
                    const Nonce& manager);

}  // namespace nvio
