// Package account turns what the decode loop has seen and decided into metrics. The loop calls it; nothing here waits.
//
//	moments.go  the times of a request, and what the metrics are told at each
//	gauges.go   the counts of a step, and gauges of scheduler, ledger and prefix tree
//	traffic.go  the bytes that a step moves
package account
