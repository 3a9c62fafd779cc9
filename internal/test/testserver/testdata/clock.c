// Preloaded into a server this shifts its wall clock, and no other clock, by the nanoseconds in the
// file that TESTSERVER_CLOCK names. It asks the kernel itself: redis-server's allocator reads the
// clock before the C library's own function can be looked up.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8 && sizeof(time_t) == 8, "the kernel's struct timespec is not the C library's");

static const int64_t *shift;

__attribute__((constructor)) static void map_shift(void) {
	const char *file = getenv("TESTSERVER_CLOCK");
	int fd = open(file ? file : "", O_RDONLY | O_CLOEXEC);
	void *map = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror("the file that TESTSERVER_CLOCK names");
		_exit(1);
	}
	close(fd);
	shift = map;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	long err = syscall(SYS_clock_gettime, id, t);
	if (err != 0 || shift == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return err;
	int64_t ns = t->tv_nsec + __atomic_load_n(shift, __ATOMIC_RELAXED);
	t->tv_sec += ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	if (t->tv_nsec < 0) {
		t->tv_sec--;
		t->tv_nsec += 1000000000;
	}
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	(void)zone; // obsolete
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t != NULL)
		*t = now.tv_sec;
	return now.tv_sec;
}
