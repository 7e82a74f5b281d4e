//go:build cgo && (llama_engine || llama_system)

// The limits of a process are looked at before Go's runtime starts: where they are too tight it would end the process
// with its own crash report, before main could say anything.

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// UMA_MIN_ADDRESS_SPACE: Go's runtime reserves some 1.2 GiB at its start (page summaries and the scavenger's index,
// nothing of it touched), and fails at random below 1.7 GiB, by where its first arena fits.
#define UMA_MIN_ADDRESS_SPACE (2048ull << 20)

// UMA_MIN_DESCRIPTORS is for the socket, the model's file, two pollers, the reserve, and a few clients.
#define UMA_MIN_DESCRIPTORS 64ull

extern char *program_invocation_short_name;

static void uma_too_low(const char *what, unsigned long long has, const char *unit, unsigned long long needs, const char *how) {
	char text[512];
	int n = snprintf(text, sizeof text, "%s: %s is limited to %llu%s; at least %llu%s are needed: raise the limit (%s)\n",
	                 program_invocation_short_name, what, has, unit, needs, unit, how);
	if (n > 0) {
		ssize_t written = write(STDERR_FILENO, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
		(void)written;
	}
	_exit(1);
}

__attribute__((constructor)) static void uma_check_limits(void) {
	struct rlimit l;
	if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY && l.rlim_cur < UMA_MIN_ADDRESS_SPACE) {
		uma_too_low("the address space", (unsigned long long)l.rlim_cur >> 20, " MiB", UMA_MIN_ADDRESS_SPACE >> 20, "ulimit -v, LimitAS=");
	}
	// The soft limit is raised to the hard one by Go itself.
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_max != RLIM_INFINITY && l.rlim_max < UMA_MIN_DESCRIPTORS) {
		uma_too_low("the number of open files", (unsigned long long)l.rlim_max, "", UMA_MIN_DESCRIPTORS, "ulimit -n, LimitNOFILE=");
	}
}
