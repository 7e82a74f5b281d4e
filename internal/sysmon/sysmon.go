// Package sysmon keeps the monitor thread of Go's runtime from disturbing compute threads.
//
// That thread (runtime.sysmon) takes processors of Go's back from goroutines that stay in a system call, and ends time slices of
// 10 ms. To be quick it looks around every 20 us (70 with the kernel's own slack) fifty times over after it was woken by a thread
// that came back from a long call. A decode step is such a call. So it took a processor from the engine fifty times in
// each step, 10 us each, while the other compute threads waited at their barrier: 0.95 of the bare loop's tokens a second,
// against 0.99 since it sleeps 2 ms longer each time (135 M parameters, two hardware threads, 1, 4 and 16 streams; seen with perf sched
// timehist, measured with uma-bench overhead).
//
// What waits for it then waits longer: a goroutine that is ready while all processors of Go's are in system calls, and the
// end of a time slice. Garbage collection does not.
package sysmon
