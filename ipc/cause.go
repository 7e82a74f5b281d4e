package ipc

// Cause is the reason for which a connection ended; its String is a metric label.
type Cause uint8

const (
	PeerClosed   Cause = iota // the client closed
	HalfClosed                // the client had shut down its write side, and its last answer was sent
	Answered                  // the newline protocol's "metrics", which closes after its answer
	Idle                      // --idle-timeout
	BrokenStream              // a FrameError, answered
	NotReading                // the client sent requests without reading the answers
	IOError                   // a system call failed
	ByServer                  // Conn.Close
	Stopping                  // Loop.Stop
	TimedOut                  // Config.MessageTimeout: a message was incomplete
	Displaced                 // closed in favour of another user's connection
	ServedHTTP                // an HTTP connection, closed by either side; the Handler is not called
	HandedBack                // an engine process gave the connection back to the front
	EngineEnded               // the engine process that had the connection has ended by itself

	numCauses
)

var causeNames = [numCauses]string{"peer_closed", "half_closed", "answered", "idle", "broken_stream", "not_reading",
	"io_error", "by_server", "stopping", "timed_out", "displaced", "http", "handed_back", "engine_ended"}

func (c Cause) String() string { return causeNames[c] }

// Causes returns all causes, for metrics.
func Causes() []Cause {
	all := make([]Cause, numCauses)
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}
