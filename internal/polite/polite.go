// Package polite keeps what surrounds the engine from disturbing its compute threads, each of which waits at the next barrier
// for the one that was disturbed: the programs that read tokens (Process), and Go's own runtime (Sysmon).
//
// On a machine whose processors all compute, the program that a token wakes has to get one of them, and Linux gives it
// that at once: a compute thread is pushed off in the middle of its work while the others wait for it at the next barrier.
// A thread of the class SCHED_BATCH does not push: it waits, some milliseconds at the worst, and gets the same share of
// time. Measured with one thread that reads and counts, on two hardware threads of one core, 135 M parameters: without it
// 0.85 … 0.95 of the bare loop's tokens a second, with it 0.98 … 1.02 (uma-bench overhead --client).
package polite
