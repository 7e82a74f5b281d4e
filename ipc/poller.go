package ipc

import "time"

// eventsPerTurn is how many ready descriptors one wait reports at most; the rest is reported by the next.
const eventsPerTurn = 128

// interest is what a descriptor is watched for. That the peer has gone altogether is always reported.
type interest uint8

const (
	wantRead  interest = 1 << iota // bytes, or that the peer has ended its side
	wantWrite                      // room in the socket's buffer
)

// readiness is what wait found.
type readiness uint8

const (
	canRead readiness = 1 << iota
	canWrite
	hungUp // the peer has closed both directions: nothing can be sent to it any more
)

// event is one ready descriptor. On kqueue one descriptor may come twice in a turn, once for each direction.
type event struct {
	fd    int
	ready readiness
}

// pollMs rounds up, so that a timer has passed when wait returns for it.
func pollMs(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}
