package ipc

// eventsPerTurn is the maximum number of ready descriptors that one wait reports; the next wait reports the rest.
const eventsPerTurn = 128

// interest is the set of events that a descriptor is watched for. A peer that has closed the socket is always reported.
type interest uint8

const (
	wantRead  interest = 1 << iota // input, or a shutdown of the peer's write side
	wantWrite                      // room in the socket's buffer
)

// readiness is the set of events that wait reports.
type readiness uint8

const (
	canRead readiness = 1 << iota
	canWrite
	hungUp // the peer has closed both directions
)

// event is one ready descriptor. With kqueue a descriptor may appear twice in a turn, once for each direction.
type event struct {
	fd    int
	ready readiness
}
