// Package llama is the runtime.Engine over llama.cpp: the only package of this project that uses cgo.
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
// An Engine's compute threads live from Open to Close (ggml would otherwise create them anew at each graph). They spin
// at the barriers inside a graph and sleep between two: see pollLevel.
package llama
