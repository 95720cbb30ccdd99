#include "service.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "../cache/cached_file.h"
#include "../nodes/file_state.h"
#include "../nodes/placement.h"
#include "../system/real.h"

namespace nvio {
namespace {

int as_error(ssize_t done) { return done < 0 ? errno : 0; }

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

Service::~Service() {
  for (const ServedFile& file : files_) session_.release(file.cached);
}

bool Service::serve_at_once(const Request& request, ServedFile& file,
                            std::span<const std::byte> payload, Reply& reply,
                            std::span<std::byte> room) {
  if ((request.flags & (kLarge | kWindow | kRuns)) != 0) return false;
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

Reply Service::serve(const Request& request, ServedFile*& file, std::span<const std::byte> payload,
                     std::vector<std::byte>& answer) {
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
    reply.error = release(file);
    file = nullptr;
    return reply;
  }
  CachedFile& cached = *file->cached;
  FileEntry& entry = cached.entry();
  // While the file is not cached here, the asker may know it better than this node's client, by
  // what it wrote plainly, and go to it plainly any time. A manager has no locks that a close gives
  // up.
  if (request.operation == Operation::read && !cached.is_active()) real().close(cached.open_anew());
  const auto shown = [&](int error) {
    return error != 0 || entry.aside.load() == 0 ? error : cached.show_others();
  };
  if ((request.flags & kRuns) != 0) {
    reply.error = shown(serve_runs(request, *file, payload, answer));
    reply.value = reply.error == 0 ? request.length : 0;
    reply.state = state_of(cached);
    reply.payload = static_cast<std::uint32_t>(answer.size());
    return reply;
  }
  const bool large = (request.flags & kLarge) != 0;
  const bool window = (request.flags & kWindow) != 0;
  switch (request.operation) {
    case Operation::read: {
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
      ssize_t done = -1;
      if ((file->access & kWrites) == 0) {
        errno = EBADF;
      } else if (window) {
        done = cached.write_window(request.offset, payload.data(), payload.size());
      } else {
        done = cached.write(request.offset, payload.data(), payload.size(), large);
      }
      reply.error = shown(as_error(done));
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
      reply.error = cached.sync();
      break;
    case Operation::write_back:
      reply.error = cached.write_back_and_flush();
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
    CachedFile* cached =
        error == 0 ? session_.acquire(fd, wanted->path, wanted->settings) : nullptr;
    real().close(fd);
    if (error != 0) return error;
    if (cached == nullptr) return ENFILE;
    const bool is_home = home_of(wanted->inode, session_.nodes()) == session_.settings().node;
    files_.push_back({cached, wanted->path, status.st_dev, wanted->inode, 1, access, is_home});
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

int Service::release(ServedFile* file) {
  CachedFile* last = nullptr;
  {
    const std::lock_guard guard(mutex_);
    if (--file->users != 0) return 0;
    last = file->cached;
    files_.remove_if([&](const ServedFile& served) { return &served == file; });
  }
  const int written = last->write_back_and_flush();
  const int released = session_.release(last);
  return written != 0 ? written : released;
}

}  // namespace nvio
