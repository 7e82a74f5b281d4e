package poll

// What a poller on kqueue asks of the kernel and makes of its answers, without the calls: its test runs on Linux.

// kqueueFilter is a filter of kqueue.
type kqueueFilter uint8

const (
	filterRead kqueueFilter = iota
	filterWrite
	filterUser // a wake-up
)

// kqueueChange adds or deletes a filter of a descriptor.
type kqueueChange struct {
	filter kqueueFilter
	add    bool
	// the write filter does not report room in the buffer, only that the peer has closed
	hangupOnly bool
}

// kqueueAnswer is an event that the kernel reports. eof: EV_EOF.
type kqueueAnswer struct {
	fd     int
	filter kqueueFilter
	eof    bool
}

// kqueueChanges lists the changes from one interest to another; at most one for each filter. watched is false for a
// descriptor that is new. The read filter reports that the peer has closed, and without it the write filter must.
func kqueueChanges(old Interest, watched bool, in Interest) (list [2]kqueueChange, n int) {
	wasRead := watched && old&WantRead != 0
	if isRead := in&WantRead != 0; isRead != wasRead {
		list[n] = kqueueChange{filter: filterRead, add: isRead}
		n++
	}
	wasOn, wasLow := kqueueWrite(old)
	wasOn = wasOn && watched
	on, low := kqueueWrite(in)
	switch {
	case on && (!wasOn || low != wasLow):
		list[n] = kqueueChange{filter: filterWrite, add: true, hangupOnly: low}
		n++
	case !on && wasOn:
		list[n] = kqueueChange{filter: filterWrite}
		n++
	}
	return list, n
}

// kqueueDeletes lists the changes that end an interest.
func kqueueDeletes(old Interest) (list [2]kqueueChange, n int) {
	if old&WantRead != 0 {
		list[n] = kqueueChange{filter: filterRead}
		n++
	}
	if on, _ := kqueueWrite(old); on {
		list[n] = kqueueChange{filter: filterWrite}
		n++
	}
	return list, n
}

// kqueueWrite returns the setting of the write filter. Without WantRead it must report that the peer has closed.
func kqueueWrite(in Interest) (on, hangupOnly bool) {
	return in&WantWrite != 0 || in&WantRead == 0, in&WantWrite == 0
}

// event returns the event of an answer; wake is true for a wake-up, which has none.
func (a kqueueAnswer) event() (ev Event, wake bool) {
	switch {
	case a.filter == filterUser:
		return Event{}, true
	case a.filter == filterRead:
		return Event{a.fd, CanRead}, false
	case a.eof:
		return Event{a.fd, HungUp}, false
	}
	return Event{a.fd, CanWrite}, false
}
