// Package sysmon reduces the disturbance of compute threads by the monitor thread of Go's runtime.
//
// That thread (runtime.sysmon) retakes Go's processors from goroutines in long system calls, and ends time slices of 10
// ms. After a thread returns from a long call, it polls fifty times at intervals of 20 µs (70 µs with the kernel's
// timer slack). A decode step is such a call, so each step lost a core for 10 µs fifty times while the other compute
// threads waited at their barrier. Throughput was 0.95 of the bare loop's, and is 0.99 since the thread sleeps 2 ms
// longer each time (135 M parameters, two hardware threads, 1, 4 and 16 streams; observed with perf sched timehist,
// measured with uma-bench overhead).
//
// The cost: a ready goroutine waits longer when all of Go's processors are in system calls, and time slices end later.
// Garbage collection is not delayed.
package sysmon
