// Package sched decides what each decode step computes.
package sched
