#include "service.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "../cache/cached_file.h"
#include "../nodes/file_state.h"
#include "../nodes/placement.h"
#include "../system/no_memory.h"
#include "../system/real.h"

namespace nvio {
namespace {

constexpr std::size_t kMostTaken = 16 << 20;  // bytes of writes that wait, of all who ask

int as_error(ssize_t done) { return done < 0 ? errno : 0; }

// A node that caches nothing any more, while others may, has them see what it wrote.
int shown(CachedFile& cached, int error) {
  return error != 0 || cached.entry().aside.load() == 0 ? error : cached.show_others();
}

// Whether a file that is open here serves who asks for it. Files of two file systems may have the
// same inode; so one that is asked for by another name must be the one that has this name here.
bool serves(const ServedFile& served, const OpenRequest& wanted) {
  if (served.inode != wanted.inode || (wanted.access & ~served.access) != 0) return false;
  if (served.path == wanted.path) return true;
  struct stat named {};
  return real().stat(wanted.path.c_str(), &named) == 0 && named.st_ino == served.inode &&
         named.st_dev == served.device;
}

}  // namespace

Service::Service(Session& session)
    : session_(session),
      taken_(
          [](const QueuedWrite& taken) {
            const ServedFile& file = *static_cast<const ServedFile*>(taken.file);
            const auto bytes = std::as_bytes(std::span(taken.data));
            const ssize_t done = write(file, taken.large ? kLarge : 0, taken.offset, bytes);
            const bool is_short = done >= 0 && static_cast<std::size_t>(done) < bytes.size();
            return is_short ? EIO : shown(*file.cached, as_error(done));
          },
          kMostTaken) {}

Service::~Service() {
  for (const ServedFile& file : files_) {
    taken_.drain(&file);
    session_.release(file.cached);
  }
}

bool Service::serve_at_once(const Request& request, ServedFile& file, std::uint64_t asker,
                            std::span<const std::byte> payload, Reply& reply,
                            std::span<std::byte> room) {
  if ((request.flags & kQueue) != 0) return take(request, file, asker, payload, false, reply);
  if ((request.flags & (kLarge | kWindow | kRuns)) != 0) return false;
  if (taken_.overlaps(request.offset, std::max<std::uint64_t>(request.length, payload.size()),
                      &file)) {
    return false;
  }
  if (request.operation == Operation::read) {
    if (!file.is_home) file.cached->know_size(request.size);
    if (!file.cached->try_read(request.offset, room.data(), request.length)) return false;
    reply.value = reply.payload = static_cast<std::uint32_t>(request.length);
    return true;
  }
  if (request.operation == Operation::write) {
    if ((file.access & kWrites) == 0 ||
        !file.cached->try_write(request.offset, payload.data(), payload.size())) {
      return false;
    }
    reply.value = payload.size();
    return true;
  }
  return false;
}

// The size is known from now on: who is told that a write was taken may ask for it.
bool Service::take(const Request& request, ServedFile& file, std::uint64_t asker,
                   std::span<const std::byte> payload, bool waits, Reply& reply) {
  reply.state = state_of(*file.cached);
  if ((file.access & kWrites) == 0) {
    reply.error = EBADF;
    return true;
  }
  if (payload.empty()) return true;
  const auto* bytes = reinterpret_cast<const char*>(payload.data());
  QueuedWrite write{.offset = request.offset,
                    .data = {bytes, bytes + payload.size()},
                    .large = (request.flags & kLarge) != 0,
                    .file = &file,
                    .owner = asker};
  if (waits) {
    taken_.add(std::move(write));
  } else if (!taken_.try_add(std::move(write))) {
    return false;
  }
  if (file.is_home) file.cached->know_size(request.offset + payload.size());
  reply.value = payload.size();
  return true;
}

void Service::wait_for_taken(const Request& request, const ServedFile& file) {
  switch (request.operation) {
    case Operation::read:
    case Operation::write:
      // Runs lie within as much of the file as a payload may have bytes.
      taken_.wait_for(request.offset, kMostPayload, &file);
      break;
    case Operation::truncate:
    case Operation::step_aside:
    case Operation::leave:
      taken_.wait_for(0, UINT64_MAX, &file);
      break;
    case Operation::open:
    case Operation::close:
    case Operation::size:
    case Operation::grow:
    case Operation::sync:
    case Operation::write_back:
    case Operation::drain:
    case Operation::activate:
    case Operation::prefetch:
      break;
  }
}

ssize_t Service::write(const ServedFile& file, std::uint16_t flags, std::uint64_t offset,
                       std::span<const std::byte> bytes) {
  if ((file.access & kWrites) == 0) {
    errno = EBADF;
    return -1;
  }
  return (flags & kWindow) != 0
             ? file.cached->write_window(offset, bytes.data(), bytes.size())
             : file.cached->write(offset, bytes.data(), bytes.size(), (flags & kLarge) != 0);
}

Reply Service::serve(const Request& request, ServedFile*& file, std::uint64_t asker,
                     std::span<const std::byte> payload, std::vector<std::byte>& answer) {
  Reply reply{};
  reply.magic = kReplyMagic;
  if (request.operation == Operation::open) {
    reply.error = open(request, payload, file, reply);
    return reply;
  }
  if (file == nullptr) {
    reply.error = EBADF;
    return reply;
  }
  if (request.operation == Operation::close) {
    reply.error = release(file, asker);
    file = nullptr;
    return reply;
  }
  if ((request.flags & kQueue) != 0) {
    take(request, *file, asker, payload, true, reply);
    return reply;
  }
  wait_for_taken(request, *file);
  CachedFile& cached = *file->cached;
  FileEntry& entry = cached.entry();
  // While the file is not cached here, the asker may know it better than this node's client, by
  // what it wrote plainly, and go to it plainly any time. A manager has no locks that a close gives
  // up.
  if (request.operation == Operation::read && !cached.is_active()) real().close(cached.open_anew());
  if ((request.flags & kRuns) != 0) {
    reply.error = shown(cached, serve_runs(request, *file, payload, answer));
    reply.value = reply.error == 0 ? request.length : 0;
    reply.state = state_of(cached);
    reply.payload = static_cast<std::uint32_t>(answer.size());
    return reply;
  }
  switch (request.operation) {
    case Operation::read: {
      const bool large = (request.flags & kLarge) != 0;
      const bool window = (request.flags & kWindow) != 0;
      if (!file->is_home) cached.know_size(request.size);
      answer.resize(request.length);
      const ssize_t done = window
                               ? cached.read_window(request.offset, answer.data(), request.length)
                               : cached.read(request.offset, answer.data(), request.length, large);
      reply.error = as_error(done);
      answer.resize(static_cast<std::size_t>(std::max<ssize_t>(done, 0)));
      reply.value = answer.size();
      break;
    }
    case Operation::write: {
      const ssize_t done = write(*file, request.flags, request.offset, payload);
      reply.error = shown(cached, as_error(done));
      reply.value = static_cast<std::uint64_t>(std::max<ssize_t>(done, 0));
      break;
    }
    case Operation::size:
      reply.value = cached.size();
      break;
    case Operation::grow:
      cached.know_size(request.size);
      break;
    case Operation::truncate:
      reply.error = cached.truncate(request.size);
      break;
    case Operation::sync:
      reply.error = taken_.drain(file, asker);
      if (const int error = cached.sync(); reply.error == 0) reply.error = error;
      break;
    case Operation::write_back:
      reply.error = taken_.drain(file, asker);
      if (const int error = cached.write_back_and_flush(); reply.error == 0) reply.error = error;
      break;
    case Operation::drain:
      reply.error = cached.drain();
      reply.value = cached.real_file_size();
      break;
    case Operation::activate:
      reply.error = cached.drain();
      if (reply.error == 0) cached.activate_drained(request.size);
      break;
    case Operation::step_aside:
      cached.leave_plain();
      reply.error = cached.step_aside();
      break;
    case Operation::leave:
      if (entry.aside.load() == 0) {
        reply.error = EBUSY;
      } else {
        cached.see_anew();
        entry.left.store(1);
      }
      break;
    case Operation::prefetch:
      if (!file->is_home) cached.know_size(request.size);
      cached.prefetch_group(request.offset / kGroupSize);
      break;
    case Operation::open:
    case Operation::close:
      break;
  }
  reply.state = state_of(cached);
  reply.payload = static_cast<std::uint32_t>(answer.size());
  return reply;
}

int Service::serve_runs(const Request& request, ServedFile& file,
                        std::span<const std::byte> payload, std::vector<std::byte>& answer) {
  const auto wanted = parse_runs(request, payload);
  if (!wanted) return EPROTO;
  if (request.operation == Operation::write) {
    if ((file.access & kWrites) == 0) return EBADF;
    const auto* bytes = reinterpret_cast<const char*>(wanted->bytes.data());
    return file.cached->write_runs(wanted->runs, bytes) ? 0 : EIO;
  }
  if (!file.is_home) file.cached->know_size(request.size);
  answer.resize(request.length);
  if (file.cached->read_runs(wanted->runs, reinterpret_cast<char*>(answer.data()))) return 0;
  answer.clear();
  return EIO;
}

// A file that is open here already is reached through that: it may have no name any more.
int Service::open(const Request& request, std::span<const std::byte> payload, ServedFile*& file,
                  Reply& reply) {
  const auto wanted = parse_open(payload);
  if (!wanted) return EPROTO;
  const std::lock_guard guard(mutex_);
  const auto known = std::find_if(files_.begin(), files_.end(), [&](const ServedFile& served) {
    return serves(served, *wanted);
  });
  if (known != files_.end()) {
    ++known->users;
    file = &*known;
    session_.raise(file->cached->entry(), wanted->settings);
  } else {
    std::uint32_t access = kReads | kWrites;
    int fd = real().open(wanted->path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && wanted->access == kReads) {
      access = kReads;
      fd = real().open(wanted->path.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0 && wanted->access == kWrites) {
      access = kWrites;
      fd = real().open(wanted->path.c_str(), O_WRONLY | O_CLOEXEC);
    }
    if (fd < 0) return errno;
    struct stat status {};
    int error = real().fstat(fd, &status) == 0 ? 0 : errno;
    if (error == 0 && status.st_ino != wanted->inode) error = ESTALE;
    const bool is_home = home_of(wanted->inode, session_.nodes()) == session_.settings().node;
    std::list<ServedFile> one;
    const int lacked = or_no_memory([&] {
      // The place first: without one nobody would ever release the handle.
      one.push_back({nullptr, wanted->path, status.st_dev, wanted->inode, 1, access, is_home});
      if (error == 0) one.front().cached = session_.acquire(fd, wanted->path, wanted->settings);
      return 0;
    });
    real().close(fd);
    if (error != 0 || lacked != 0) return error != 0 ? error : lacked;
    if (one.front().cached == nullptr) return ENFILE;
    files_.splice(files_.end(), one);
    file = &files_.back();
  }
  CachedFile& cached = *file->cached;
  if ((request.flags & kRouted) != 0) cached.leave_plain();
  const Shares shares = shares_of(cached, wanted->settings.spread, session_.nodes());
  reply.part = shares.part;
  reply.unit = static_cast<std::uint32_t>(shares.unit);
  reply.value = cached.size();
  reply.state = state_of(cached);
  return 0;
}

int Service::release(ServedFile* file, std::uint64_t asker) {
  const int taken = taken_.drain(file, asker);
  CachedFile* last = nullptr;
  {
    const std::lock_guard guard(mutex_);
    if (--file->users != 0) return taken;
    last = file->cached;
    files_.remove_if([&](const ServedFile& served) { return &served == file; });
  }
  const int written = last->write_back_and_flush();
  const int released = session_.release(last);
  if (taken != 0) return taken;
  return written != 0 ? written : released;
}

}  // namespace nvio
