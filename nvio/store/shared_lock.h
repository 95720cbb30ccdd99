// A mutex in memory shared by processes that may be killed while they hold it.
#pragma once

#include <pthread.h>

#include <cerrno>

namespace nvio {

class SharedLock {
 public:
  // Must be called once, by the process that makes the shared memory, before any other use.
  void initialise() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }

  // What is guarded is changed in an order that leaves it readable after any single store, so the
  // lock of a dead owner is simply taken over.
  void lock() { settle(pthread_mutex_lock(&mutex_)); }

  bool try_lock() { return settle(pthread_mutex_trylock(&mutex_)); }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  bool settle(int result) {
    if (result == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    return result == 0 || result == EOWNERDEAD;
  }

  pthread_mutex_t mutex_;
};

}  // namespace nvio
