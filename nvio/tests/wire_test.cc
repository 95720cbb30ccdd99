// The manager's messages: golden bytes, hostile bytes, and the proof of the secret.
#include "../nodes/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace nvio {
namespace {

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(std::string(NVIO_TESTDATA) + "/" + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const unsigned byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

Request a_request() {
  Request request{};
  request.magic = kRequestMagic;
  request.operation = Operation::read;
  request.flags = kLarge;
  request.file = 3;
  request.offset = 0x0102030405060708;
  request.length = 4096;
  request.size = 0x1112131415161718;
  return request;
}

std::optional<Request> parsed(const Request& request) {
  std::array<std::byte, sizeof request> bytes{};
  std::memcpy(bytes.data(), &request, sizeof request);
  return parse_request(bytes);
}

TEST(Wire, ReadsAndWritesTheGoldenConversation) {
  // Hello, welcome, proof, an open with its path, the reply, a read, a write to be queued.
  const std::vector<std::byte> want = golden("conversation.wire");
  const std::vector<std::uint8_t> secret(32, 7);
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.node = 1;
  hello.nonce.fill(1);
  Welcome welcome{};
  std::memcpy(welcome.magic, kWireMagic, sizeof kWireMagic);
  welcome.version = kWireVersion;
  welcome.node = 1;
  welcome.nonce.fill(2);
  welcome.proof = manager_proof(secret, hello.nonce, welcome.nonce);
  const Digest shown = client_proof(secret, hello.nonce, welcome.nonce);
  OpenRequest open;
  open.inode = 4711;
  open.access = kReads | kWrites;
  open.settings.admit = Admit::always;
  open.settings.spread = Spread::parts;
  open.settings.stripe = 4 << 20;
  open.path = "/scratch/data";
  const std::vector<std::byte> payload = open_payload(open);
  Request request{};
  request.magic = kRequestMagic;
  request.operation = Operation::open;
  request.payload = static_cast<std::uint32_t>(payload.size());
  Reply reply{};
  reply.magic = kReplyMagic;
  reply.value = 1 << 20;
  reply.part = 8;
  reply.unit = 4;
  reply.state = FileState::active;
  const Request read = a_request();
  Request write = a_request();
  write.operation = Operation::write;
  write.flags = kLarge | kQueue;
  write.payload = 3;
  write.length = 0;

  std::vector<std::byte> got;
  const auto add = [&got](const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    got.insert(got.end(), bytes, bytes + size);
  };
  add(&hello, sizeof hello);
  add(&welcome, sizeof welcome);
  add(shown.data(), shown.size());
  add(&request, sizeof request);
  add(payload.data(), payload.size());
  add(&reply, sizeof reply);
  add(&read, sizeof read);
  add(&write, sizeof write);
  add("abc", write.payload);
  if (std::getenv("NVIO_WRITE_GOLDEN") != nullptr) {
    std::ofstream(std::string(NVIO_TESTDATA) + "/conversation.wire", std::ios::binary)
        .write(reinterpret_cast<const char*>(got.data()), static_cast<std::streamsize>(got.size()));
  }
  EXPECT_EQ(got == want, true);

  ASSERT_TRUE(parsed(request).has_value());
  ASSERT_TRUE(parsed(write).has_value());
  const auto reopened = parse_open(payload);
  ASSERT_TRUE(reopened.has_value());
  EXPECT_EQ(reopened->path, "/scratch/data");
  EXPECT_EQ(reopened->inode, 4711U);
  EXPECT_EQ(reopened->settings.spread, Spread::parts);
  EXPECT_EQ(reopened->settings.stripe, 4U << 20);
}

TEST(Wire, CarriesRunsAndRefusesThoseThatDoNotFit) {
  const std::vector<FileRun> runs{{1000, 3}, {1010, 5}};
  std::vector<std::byte> bytes(8, std::byte{9});
  Request request = a_request();
  request.operation = Operation::write;
  request.flags = kRuns;
  request.offset = 1000;
  request.length = 8;
  std::vector<std::byte> payload = runs_payload(1000, runs, bytes);
  const auto found = parse_runs(request, payload);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->runs.size(), 2U);
  EXPECT_EQ(found->runs[1].offset, 1010U);
  EXPECT_EQ(found->runs[1].length, 5U);
  EXPECT_EQ(found->bytes.size(), 8U);

  const auto refused = [&](const std::vector<FileRun>& others, std::uint64_t length) {
    Request changed = request;
    changed.length = length;
    return !parse_runs(changed, runs_payload(1000, others, bytes)).has_value();
  };
  EXPECT_FALSE(refused(runs, 8));
  EXPECT_TRUE(refused(runs, 7));
  EXPECT_TRUE(refused({}, 8)) << "no run";
  EXPECT_TRUE(refused({{1000, 3}, {1002, 5}}, 8)) << "one on the other";
  EXPECT_TRUE(refused({{1010, 3}, {1000, 5}}, 8)) << "backwards";
  EXPECT_TRUE(refused({{1000, 8}, {1010, 0}}, 8)) << "of no byte";
  EXPECT_TRUE(refused({{1000, 3}, {1000 + kMostPayload, 5}}, 8)) << "too far";
  payload.pop_back();
  EXPECT_FALSE(parse_runs(request, payload).has_value()) << "not whole";
  request.operation = Operation::size;
  EXPECT_FALSE(parsed(request).has_value()) << "only transfers have runs";
}

TEST(Wire, RefusesRequestsThatAManagerMustNotActOn) {
  EXPECT_TRUE(parsed(a_request()).has_value());
  const auto refused = [](auto&& change) {
    Request request = a_request();
    change(request);
    return !parsed(request).has_value();
  };
  EXPECT_TRUE(refused([](Request& r) { r.magic ^= 1; }));
  EXPECT_TRUE(refused([](Request& r) { r.operation = static_cast<Operation>(0); }));
  EXPECT_TRUE(refused([](Request& r) { r.operation = static_cast<Operation>(16); }));
  EXPECT_TRUE(refused([](Request& r) { r.flags = 32; }));
  EXPECT_TRUE(refused([](Request& r) { r.flags = kQueue; })) << "a read";
  for (const std::uint16_t other : {kWindow, kRuns}) {
    EXPECT_TRUE(refused([other](Request& r) {
      r.operation = Operation::write;
      r.flags = static_cast<std::uint16_t>(kQueue | other);
    }));
  }
  EXPECT_TRUE(refused([](Request& r) { r.payload = 1; }));  // a read carries none
  EXPECT_TRUE(refused([](Request& r) { r.payload = kMostPayload + 1; }));
  EXPECT_TRUE(refused([](Request& r) { r.length = kMostPayload + 1; }));
  EXPECT_TRUE(refused([](Request& r) { r.length = ~0ULL; }));
  EXPECT_TRUE(refused([](Request& r) { r.offset = 1ULL << 63; }));
  EXPECT_TRUE(refused([](Request& r) { r.offset = INT64_MAX; }));
  EXPECT_TRUE(refused([](Request& r) { r.size = ~0ULL; }));
  EXPECT_TRUE(refused([](Request& r) { r.node = kMaxNodes; }));
  EXPECT_TRUE(refused([](Request& r) { r.unused = 1; }));
}

TEST(Wire, KnowsWhoCalls) {
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.node = 1;
  hello.caller = kProcess;
  EXPECT_TRUE(is_hello(hello, 1));
  hello.caller = 2;
  EXPECT_TRUE(is_hello(hello, 1));
  hello.caller = 1;
  EXPECT_FALSE(is_hello(hello, 1)) << "itself";
  hello.caller = kMaxNodes;
  EXPECT_FALSE(is_hello(hello, 1)) << "no node";
}

TEST(Wire, WhatIsParsedFromAnyBytesIsWithinBounds) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    std::array<std::byte, sizeof(Request)> bytes{};
    const Request base = a_request();
    std::memcpy(bytes.data(), &base, sizeof base);
    for (std::uint64_t k = random() % 6; k > 0; --k) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto request = parse_request(bytes);
    if (!request) continue;
    EXPECT_LE(request->payload, kMostPayload);
    EXPECT_LE(request->length, kMostPayload);
    EXPECT_LE(request->offset + request->length, static_cast<std::uint64_t>(INT64_MAX));
    std::vector<std::byte> payload(random() % 80);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random() % 4 * 40);
    if (const auto open = parse_open(payload)) {
      EXPECT_EQ(open->path.front(), '/');
    }
  }
}

TEST(Sha256, IsThatOfTheStandards) {
  EXPECT_EQ(hex(sha256(bytes_of(""))),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  // RFC 4231, cases 2 and 6.
  EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::vector<std::uint8_t>(131, 0xaa),
                            bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, ProofsDifferByRoleSecretAndNonces) {
  const std::vector<std::uint8_t> secret(32, 7);
  const std::vector<std::uint8_t> other(32, 8);
  Nonce a{};
  Nonce b{};
  b.fill(1);
  EXPECT_FALSE(equal_digests(client_proof(secret, a, b), manager_proof(secret, a, b)));
  EXPECT_FALSE(equal_digests(client_proof(secret, a, b), client_proof(other, a, b)));
  EXPECT_FALSE(equal_digests(client_proof(secret, a, b), client_proof(secret, b, a)));
}

}  // namespace
}  // namespace nvio
