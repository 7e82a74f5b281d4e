// Package gpucheck examines uma-serve on a machine's accelerator from end to end: whether its answers are the
// processor's, and the speed of many streams at once, beside llama-server of the same tree with the same file. Every
// step has a time limit, a failure is recorded and the next step is run: a rented machine with a card may be available
// for minutes only.
package gpucheck
