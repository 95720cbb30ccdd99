// POSIX asynchronous transfers: served at once.

#include <aio.h>

#include <cerrno>

#include "interpose.h"

namespace nvio {
namespace {

bool notifies(const sigevent& event) {
  return event.sigev_notify != SIGEV_NONE &&
         (event.sigev_notify != SIGEV_SIGNAL || event.sigev_signo != 0);
}

constexpr int kNotServed = 1;

// glibc keeps an asynchronous call's outcome in the control block itself, and aio_error,
// aio_return and aio_suspend only look there: a call served at once needs no table of ours.
// Returns what the call is to return, or kNotServed.
int serve_aio(aiocb* block, int opcode) {
  if (!is_tracked(block->aio_fildes)) return kNotServed;
  if (!Hooks()->serves_asynchronous || notifies(block->aio_sigevent)) {
    if (Hooks()->step_aside(block->aio_fildes) == 0) return kNotServed;
    block->__error_code = errno;
    block->__return_value = -1;
    return -1;
  }
  ssize_t done = 0;
  void* buffer = const_cast<void*>(block->aio_buf);
  if (opcode == LIO_READ) {
    done = Hooks()->read_at(block->aio_fildes, buffer, block->aio_nbytes, block->aio_offset);
  } else if (opcode == LIO_WRITE) {
    done = Hooks()->write_at(block->aio_fildes, buffer, block->aio_nbytes, block->aio_offset);
  } else {
    done = Hooks()->sync(block->aio_fildes);
  }
  block->__error_code = done < 0 ? errno : 0;
  block->__return_value = done;
  return 0;
}

}  // namespace
}  // namespace nvio

using nvio::is_tracked;

NVIO_EXPORT int aio_read64(aiocb64* block) {
  const int served = nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_READ);
  return served != nvio::kNotServed ? served : NEXT(aio_read64)(block);
}
NVIO_EXPORT int aio_read(aiocb* block) { return aio_read64(reinterpret_cast<aiocb64*>(block)); }
NVIO_EXPORT int aio_write64(aiocb64* block) {
  const int served = nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_WRITE);
  return served != nvio::kNotServed ? served : NEXT(aio_write64)(block);
}
NVIO_EXPORT int aio_write(aiocb* block) { return aio_write64(reinterpret_cast<aiocb64*>(block)); }
NVIO_EXPORT int aio_fsync64(int operation, aiocb64* block) {
  const int served = nvio::serve_aio(reinterpret_cast<aiocb*>(block), LIO_NOP);
  return served != nvio::kNotServed ? served : NEXT(aio_fsync64)(operation, block);
}
NVIO_EXPORT int aio_fsync(int operation, aiocb* block) {
  return aio_fsync64(operation, reinterpret_cast<aiocb64*>(block));
}
NVIO_EXPORT int lio_listio64(int mode, aiocb64* const list[], int count, sigevent* event) {
  // The C library alone tells when the whole list is through.
  const bool notifies = mode == LIO_NOWAIT && event != nullptr && nvio::notifies(*event);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    if (list[i] == nullptr) continue;
    any = any || is_tracked(list[i]->aio_fildes);
    if (notifies && nvio::step_aside(list[i]->aio_fildes) != 0) return -1;
  }
  if (!any || notifies) return NEXT(lio_listio64)(mode, list, count, event);
  // The entries of other files go to the C library one by one, and are waited for together.
  bool failed = false;
  for (int i = 0; i < count; ++i) {
    if (list[i] == nullptr || list[i]->aio_lio_opcode == LIO_NOP) continue;
    const bool is_read = list[i]->aio_lio_opcode == LIO_READ;
    if ((is_read ? aio_read64(list[i]) : aio_write64(list[i])) != 0) failed = true;
  }
  for (int i = 0; mode == LIO_WAIT && i < count; ++i) {
    if (list[i] == nullptr || list[i]->aio_lio_opcode == LIO_NOP) continue;
    const aiocb64* one[] = {list[i]};
    while (aio_error64(list[i]) == EINPROGRESS) aio_suspend64(one, 1, nullptr);
    if (aio_error64(list[i]) != 0) failed = true;
  }
  if (failed) errno = EIO;
  return failed ? -1 : 0;
}
NVIO_EXPORT int lio_listio(int mode, aiocb* const list[], int count, sigevent* event) {
  return lio_listio64(mode, reinterpret_cast<aiocb64* const*>(list), count, event);
}
