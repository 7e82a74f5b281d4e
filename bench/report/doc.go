// Package report turns what a benchmark saw into numbers, tables, pages and verdicts.
//
// A Report is one configuration under one workload, over its repeats. Its JSON is flat for the metrics (the keys of
// Metrics) and strict: what was not measured is null, never NaN and never 0.
//
// # Where a number comes from
//
// Provenance says it: Measured numbers were seen by a client of a running server, Synthetic ones were computed by the
// replay mode, whose decoder only takes virtual time. They are never put into one table: New documents and Compare
// refuse to, and the page carries the word in its head.
//
// # What an interval means
//
// Headline percentiles are over all requests of all repeats together. Intervals are over the repeats: each gives one
// value of a metric, and the 95 % interval is Student's for their mean. One repeat has no interval.
package report
