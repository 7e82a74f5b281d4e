// Package gpucheck examines uma-serve on a machine's accelerator from end to end: are its answers the processor's, what
// do many streams at once reach, what does llama-server of the same tree reach with the same file. Every step has a
// limit of time, a failure is recorded and the next step is run: a rented machine with a card may be available for
// minutes only.
package gpucheck
