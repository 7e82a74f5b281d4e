// Package llama is the runtime.Engine over llama.cpp: with runtime/llama/kernels the only package of
// this project that uses cgo.
//
// llama.cpp comes in as static libraries that make builds with llama.cpp's own cmake (engine_make.go, the tag
// llama_engine), or as the installed library under the tag llama_system (engine_system.go). Without one of these tags,
// and without cgo, the package keeps its API and Open returns runtime.ErrNotBuilt (stub.go).
//
// # What crosses the border, and how
//
//   - A batch is C arrays, allocated once by Open and seen from Go as slices: filling it costs no call and no copy.
//   - Logits are read where llama.cpp left them. Decode, Logits and Argmax allocate nothing.
//   - Abort is a Go atomic, pinned, that llama.cpp polls between the operations of a graph through a C function: no
//     call from a compute thread into Go.
//   - llama.cpp's log lines go into a ring in C and are taken out by Go when Open, a failing call or DrainLogs asks
//     (log.go). None reaches stderr.
//   - C++ exceptions end in bridge.cpp. Input that would abort llama.cpp (a truncated file, a sequence id out
//     of range) is refused here first.
//
// # Threads
//
// An Engine's compute threads live from Open to Close (ggml would otherwise create them anew at each graph). They sleep
// between two graphs (pollLevel). At a barrier inside a graph they spin for a while, then sleep (barrier.cpp).
//
// # Where things are
//
//	bridge.cpp        calls into llama.cpp
//	matmul.cpp        products of matrices: which kernels compute them (--kernels)
//	attention.cpp     attention
//	kernels           both in the instructions of each processor
//	keep.cpp          which weights ggml repacks
//	positions.cpp     the order of cells, from llama.cpp's table
//	repack.cpp        how much memory repacked weights take
//	embed.go, rank.cpp  hidden states, and the weights of a ranking head
//	parts.go          which of these parts fit the linked llama.cpp
package llama
