#include "reach.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "../transport/wiped.h"
#include "rendezvous.h"
#include "start_manager.h"
#include "wire.h"

namespace nvio {
namespace {

// Nodes of one machine: the user's identity decides alone, and nobody needs the secret.
bool is_same_machine(const Settings& settings, std::uint32_t node) {
  return settings.rendezvous.empty() || node == settings.node;
}

std::string about(const Refusal& refusal) {
  return "it serves " + std::to_string(refusal.peers) + " processes, and its limit of " +
         std::to_string(refusal.limit) +
         " open files leaves no room for another; raise the hard limit on its node (ulimit -Hn, "
         "DefaultLimitNOFILE=, slurmd's LimitNOFILE=)";
}

bool prove(Channel& channel, const std::vector<std::uint8_t>& secret, std::uint32_t node,
           std::uint32_t caller, Reached& reached) {
  Hello hello{};
  std::memcpy(hello.magic, kWireMagic, sizeof kWireMagic);
  hello.version = kWireVersion;
  hello.node = node;
  hello.caller = caller;
  if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) !=
      static_cast<ssize_t>(hello.nonce.size())) {
    reached.why = "no random numbers";
    return false;
  }
  const iovec first{&hello, sizeof hello};
  Welcome welcome{};
  // Who refuses may have closed before this was sent.
  send_all(channel, &first, 1);
  if (const int error = receive_all(channel, &welcome, sizeof welcome); error != 0) {
    reached.why = error == ETIMEDOUT ? "it does not answer" : "it went away";
    return false;
  }
  if (const auto refusal = parse_refusal(welcome, node)) {
    reached.why = about(*refusal);
    reached.is_refused = true;
    return false;
  }
  if (!is_welcome(welcome, node) ||
      !equal_digests(welcome.proof, manager_proof(secret, hello.nonce, welcome.nonce))) {
    reached.why = "what answers there is no manager of this job";
    return false;
  }
  Digest shown = client_proof(secret, hello.nonce, welcome.nonce);
  const iovec second{shown.data(), shown.size()};
  Reply confirmed{};
  if (send_all(channel, &second, 1) != 0 ||
      (caller != kProcess && receive_all(channel, &confirmed, sizeof confirmed) != 0)) {
    reached.why = "it went away";
    return false;
  }
  reached.is_there = true;
  if (confirmed.error != 0) reached.why = "it connects itself";
  return confirmed.error == 0;
}

Reached attempt(const Settings& settings, std::uint32_t node, std::uint32_t caller) {
  Reached reached;
  const bool here = is_same_machine(settings, node);
  std::vector<std::uint8_t> secret;
  const Wiped no_secret(secret);
  if (!here && !job_secret(settings, secret, reached.why)) return reached;
  const std::string address =
      here ? local_address(settings, node) : published_address(settings, node);
  if (address.empty()) {
    reached.why = "it has not told its address yet";
    return reached;
  }
  auto channel = connect_to(address, {std::chrono::seconds(settings.silence)}, reached.why);
  if (channel == nullptr) return reached;
  if (here && !channel->is_same_user()) {
    reached.why = address + " belongs to another user";
    return reached;
  }
  if (prove(*channel, secret, node, caller, reached)) reached.channel = std::move(channel);
  return reached;
}

}  // namespace

// On other machines a manager is started by the processes there.
Reached reach_manager(const Settings& settings, std::uint32_t node, std::uint32_t caller) {
  Reached reached = attempt(settings, node, caller);
  const bool is_missing = reached.channel == nullptr && !reached.is_refused && !reached.is_there;
  if (is_missing && is_same_machine(settings, node)) {
    reached.is_refused = start_manager(settings, node, reached.why) == Started::failed;
  }
  return reached;
}

}  // namespace nvio
