// Shifts the wall clock of the process that preloads this, by the seconds in the file that CLOCK_SHIFT names. The
// monotonic clock is not changed, as when an administrator or NTP sets a clock. A wait until a time of the wall clock
// notices a jump that happens meanwhile.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *shift;

__attribute__((constructor)) static void open_shift(void) {
  const char *path = getenv("CLOCK_SHIFT");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) shift = mapped;
  if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec time;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  if (now) *now = time.tv_sec;
  return time.tv_sec;
}

static int is_before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
  static int (*original)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!original) original = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  // The monotonic clock, which began when the machine did, is not shifted.
  if (until->tv_sec < 1000000000) return original(cond, mutex, until);
  for (;;) {
    struct timespec shifted, slice;
    clock_gettime(CLOCK_REALTIME, &shifted);
    if (!is_before(&shifted, until)) return ETIMEDOUT;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &slice);
    slice.tv_nsec += 20 * 1000 * 1000;
    slice.tv_sec += slice.tv_nsec / 1000000000;
    slice.tv_nsec %= 1000000000;
    int ended = original(cond, mutex, &slice);
    if (ended != ETIMEDOUT) return ended;
  }
}
