// Requests: what is cached is served at once, the rest by threads that may wait.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../system/no_memory.h"
#include "loop.h"

namespace nvio {

namespace {

constexpr std::size_t kMostFiles = 4096;  // numbers a connection may hold

Reply refusal(int error) {
  Reply reply{};
  reply.magic = kReplyMagic;
  reply.error = error;
  return reply;
}

}  // namespace

std::size_t Loop::take_request(Connection& connection) {
  if (connection.filled < sizeof(Request)) return 0;
  const auto request = parse_request(
      std::span<const std::byte, sizeof(Request)>(connection.in.data(), sizeof(Request)));
  if (!request) {
    drop(connection);
    return 0;
  }
  const std::size_t whole = sizeof(Request) + request->payload;
  if (connection.filled < whole) {
    if (connection.in.size() < whole) connection.in.resize(kMostRoom);
    return 0;
  }
  const std::span<const std::byte> message(connection.in.data(), whole);
  if (request->node == options_.node) {
    serve(connection, *request, message);
  } else {
    pass_on(connection, *request, message);
  }
  return whole;
}

void Loop::serve(Connection& connection, const Request& request,
                 std::span<const std::byte> message) {
  const std::span<const std::byte> payload = message.subspan(sizeof(Request));
  const bool has_file =
      request.file < connection.files.size() && connection.files[request.file] != nullptr;
  if (has_file) {
    Reply reply{};
    reply.magic = kReplyMagic;
    bool is_served = true;
    const int error = or_no_memory([&] {
      is_served = service_.serve_at_once(request, *connection.files[request.file],
                                         connection.number, payload, reply, scratch_);
      return 0;
    });
    if (error != 0) reply = refusal(error);
    if (is_served) {
      send(connection, bytes_of(reply), std::span(scratch_).first(reply.payload));
      return;
    }
  }
  serve_later(connection, request, payload);
}

void Loop::serve_later(Connection& connection, const Request& request,
                       std::span<const std::byte> payload) {
  struct Work {
    Request request;
    std::vector<std::byte> payload, answer;
    ServedFile* file = nullptr;
    Reply reply{};
  };
  const auto work = std::make_shared<Work>();
  work->request = request;
  work->payload.assign(payload.begin(), payload.end());
  const bool is_new = request.operation == Operation::open;
  if (!is_new && request.file < connection.files.size()) {
    work->file = connection.files[request.file];
  }
  connection.busy = true;
  ++working_;
  connection.want(poll_);
  workers_.add(
      [this, work, number = connection.number] {
        const int error = or_no_memory([&] {
          work->reply =
              service_.serve(work->request, work->file, number, work->payload, work->answer);
          return 0;
        });
        if (error != 0) work->reply = refusal(error);
      },
      [this, work, number = connection.number] {
        --working_;
        finished(number, work->request.operation, work->request.file, work->file, work->reply,
                 work->answer);
      });
}

void Loop::finished(std::uint64_t number, Operation operation, std::uint32_t index,
                    ServedFile* file, const Reply& reply, const std::vector<std::byte>& answer) {
  Connection& connection = connections_.at(number);
  connection.busy = false;
  Reply told = reply;
  if (operation == Operation::open && file != nullptr) {
    auto free = std::find(connection.files.begin(), connection.files.end(), nullptr);
    if (free == connection.files.end() && connection.files.size() < kMostFiles) {
      free = connection.files.insert(free, nullptr);
    }
    if (free == connection.files.end() || connection.gone) {
      ++working_;
      workers_.add([this, file, number] { service_.release(file, number); },
                   [this] { --working_; });
      told.error = EMFILE;
    } else {
      *free = file;
      told.file = static_cast<std::uint32_t>(free - connection.files.begin());
    }
  } else if (operation == Operation::close && index < connection.files.size()) {
    connection.files[index] = nullptr;
  }
  if (connection.gone) {
    drop(connection);
    return;
  }
  send(connection, bytes_of(told), answer);
  connection.want(poll_);
  take(connection);
}

}  // namespace nvio
