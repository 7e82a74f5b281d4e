// Package measure runs workloads against servers and reports: it starts a daemon for each side, warms it up, has a
// client process send the plan, reads the server's counters before and after, and repeats.
//
// # Order
//
// Repeats go round: every side once, then every side again, the other way around. A machine that gets warmer or busier along the run
// then slows every side alike, and what drifts between two rounds shows in the intervals.
//
// # Seeds
//
// Repeat k uses the seed + k on every side: sides see the same requests at the same times, and a repeat does not find
// the last one's prompts in the server's cache.
package measure
