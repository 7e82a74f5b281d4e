// Package measure runs workloads against servers and reports: it starts a daemon for each side, warms it up, has a
// client process send the plan, reads the server's counters before and after, and repeats.
//
// # Order
//
// Repeats alternate: every side once, then every side again in reverse order. A machine that gets warmer or busier
// slows every side alike, and the drift between two rounds widens the intervals.
//
// # Seeds
//
// Repeat k uses the seed + k on every side: sides see the same requests at the same times, and a repeat does not find
// the last one's prompts in the server's cache.
package measure
