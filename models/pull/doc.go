// Package pull downloads models: GGUF files of Hugging Face repositories and of registries that speak ollama's
// protocol. A pull resolves a name to files ([Parse], then the hub's or the registry's API), downloads each in parallel
// ranges, and renames it into place when its hash and its GGUF header are right.
//
// # What a pull leaves behind
//
// While FILE.gguf is downloaded, three files are beside its place:
//
//	FILE.gguf.part   the bytes, at their offsets; its size is the file's from the start
//	FILE.gguf.state  which bytes are there and durable, and the state of the hash (state.go)
//	FILE.gguf.lock   held with flock by the process that downloads; others wait and show its progress (lock.go)
//
// A pull that ends before its file is whole, by an error, Ctrl-C or SIGKILL, leaves them; the next pull of the file
// continues from there. State is written every 250 ms, after the bytes it names are on the disk, and receiving pauses
// when the disk takes longer than 250 ms for that: less than a second of bytes is lost, also to a power failure.
//
// Beside each finished file stands FILE.gguf.json, a [Record] of its origin.
//
// # Trust
//
// Servers are hostile: every answer has a size and a time limit, file names are checked before they become paths,
// requests and redirects go to known hosts over https (http only on loopback, or to an endpoint that the user
// configured), and a token is sent to the host it belongs to alone. The hash in the listing decides whether a file is
// whole.
//
// web.go has the known hosts, quant.go which quantisation is pulled, transfer.go when a file is whole.
package pull
