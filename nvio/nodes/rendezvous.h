// Where the managers of a job's nodes are found: in the stores' folders when the nodes are on one
// machine, else in a folder that all nodes see, which also holds the job's secret.
//
//   RENDEZVOUS/nvio-UID-SESSION/    mode 0700; SESSION.WORD where the MPI told of the nodes
//     secret                        mode 0600, 64 hexadecimal digits
//     node.K                        the address of node K's manager, one line
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../settings/settings.h"

namespace nvio {

// The job's folder below `rendezvous`; empty when the nodes are on one machine.
std::string rendezvous_folder(const Settings& settings);

// The secret, made by whoever asks first; empty with a sentence in `why` on failure. Without a
// rendezvous it is empty, and the user's identity decides alone.
bool job_secret(const Settings& settings, std::vector<std::uint8_t>& secret, std::string& why);

// Addresses of the manager of a node: of its unix socket; in the rendezvous folder (empty: not
// there yet).
std::string local_address(const Settings& settings, std::uint32_t node);
std::string published_address(const Settings& settings, std::uint32_t node);
bool publish_address(const Settings& settings, std::uint32_t node, const std::string& address,
                     std::string& why);
// Takes the node's address away, and with the last one the folder.
void withdraw_address(const Settings& settings, std::uint32_t node);
// Removes the folders of a session's jobs, all of which have ended: killed managers take nothing
// away.
void remove_rendezvous(const Settings& settings);

}  // namespace nvio
