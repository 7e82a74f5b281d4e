// Package poll reports which descriptors are ready, by epoll or kqueue, to one goroutine that any other may wake.
package poll

// MaxEvents is the maximum number of ready descriptors that one wait reports; the next wait reports the rest.
const MaxEvents = 128

// Interest is the set of events that a descriptor is watched for. A peer that has closed the socket is always reported.
type Interest uint8

const (
	WantRead  Interest = 1 << iota // input, or a shutdown of the peer's write side
	WantWrite                      // room in the socket's buffer
)

// Readiness is the set of events that wait reports.
type Readiness uint8

const (
	CanRead Readiness = 1 << iota
	CanWrite
	HungUp // the peer has closed both directions
)

// Event is one ready descriptor. With kqueue a descriptor may appear twice in a turn, once for each direction.
type Event struct {
	FD    int
	Ready Readiness
}
