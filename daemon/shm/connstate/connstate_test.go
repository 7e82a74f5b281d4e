package connstate

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a table of both processes.
func pair(t *testing.T, conns, requests int) (front, engine *Table) {
	t.Helper()
	front, err := Create(conns, requests)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(front.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	engine, err = Open(os.NewFile(uintptr(fd), "table"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close(); engine.Close() })
	return front, engine
}

func TestStateAndRequestsReachTheFront(t *testing.T) {
	front, engine := pair(t, 10, 3)
	engine.SetHostTier(1<<40, 3)
	if held, evicted := front.HostTier(); held != 1<<40 || evicted != 3 {
		t.Errorf("%d bytes in the host tier, %d evicted", held, evicted)
	}
	engine.SetHostTier(-5, 3) // as a broken engine may
	if held, _ := front.HostTier(); held != 0 {
		t.Errorf("%d bytes in the host tier", held)
	}
	s := engine.Slot(7)
	want := State{Phase: Events, API: Anthropic, Chunked: true}
	s.Set(want)
	s.Cut(true)
	want.Cut = true
	if got := front.Get(7); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.Cut(false)
	s.Unread(true)
	if got := front.Get(7); got.Cut || !got.Unread || got.Phase != Events {
		t.Errorf("%+v", got)
	}
	f := engine.Slot(2)
	f.Set(State{Phase: Framed})
	a, b := f.Begin("a"), f.Begin(strings.Repeat("x", MaxIDBytes))
	if n := engine.Slot(3).Begin("c"); n < 0 {
		t.Error("no room for a third request")
	}
	if n := f.Begin("d"); n != -1 {
		t.Errorf("a fourth request has the number %d", n)
	}
	if n := f.Begin(strings.Repeat("x", MaxIDBytes+1)); n != -1 {
		t.Errorf("an id that is too long has the number %d", n)
	}
	ids := front.Requests()
	slices.Sort(ids[2])
	if !slices.Equal(ids[2], []string{"a", strings.Repeat("x", MaxIDBytes)}) || !slices.Equal(ids[3], []string{"c"}) {
		t.Errorf("%v", ids)
	}
	// the one without room counts too
	if !front.Busy(2) || !front.Busy(7) || front.Busy(1) || front.InFlight() != 4 || front.Begun() != 4 {
		t.Errorf("busy: %v %v %v, in flight %d, begun %d", front.Busy(2), front.Busy(7), front.Busy(1),
			front.InFlight(), front.Begun())
	}
	f.End(a)
	f.End(b)
	f.End(-1)
	if front.Busy(2) || f.Begin("e") < 0 {
		t.Error("the records are not free")
	}
	front.Reset(7)
	if got := front.Get(7); got != (State{}) {
		t.Errorf("after a reset: %+v", got)
	}
	begun := front.Begun()
	q := engine.Slot(7)
	q.Set(State{Phase: Reading})
	if front.InFlight() != 3 || front.Answering() != 2 {
		t.Errorf("a request that arrives: %d in flight, %d answering", front.InFlight(), front.Answering())
	}
	q.Set(State{Phase: Asked, Question: true})
	q.Cut(true)
	if got := front.Get(7); front.Begun() != begun || front.InFlight() != 2 || !front.Busy(7) || !got.Question ||
		!got.Cut {
		t.Errorf("a question: %d begun, %d in flight, %+v", front.Begun()-begun, front.InFlight(), got)
	}
	var none *Slot
	none.Set(want)
	none.Cut(true)
	none.End(none.Begin("x"))
}

// TestReleasedConnection is no longer busy, whatever its handler still says, and says nothing of the next connection
// with its number.
func TestReleasedConnection(t *testing.T) {
	front, engine := pair(t, 4, 4)
	for i := range 5000 { // more than there are generations
		front.Reset(3)
		s := engine.Slot(3)
		s.Set(State{Phase: Asked, API: Ollama})
		if front.InFlight() != 1 || !front.Busy(3) {
			t.Fatalf("%d: an answer is not in flight", i)
		}
		s.Release()
		s.Set(State{Phase: Partial})
		s.Cut(true)
		if got := front.Get(3); front.InFlight() != 0 || front.Busy(3) || got != (State{Phase: Resting}) {
			t.Fatalf("%d: after the release: %+v", i, got)
		}
		front.Reset(3)
		next := engine.Slot(3)
		next.Set(State{Phase: Events})
		s.Set(State{Phase: Resting})
		s.Release()
		if got := front.Get(3); got != (State{Phase: Events}) {
			t.Fatalf("%d: the next connection: %+v", i, got)
		}
	}
	(*Slot)(nil).Release()
}

// TestGarbage: whatever a broken process leaves, the front reads values within their ranges.
func TestGarbage(t *testing.T) {
	front, engine := pair(t, 100, 50)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for i := range engine.mem[headerBytes:] {
			engine.mem[headerBytes+i] = byte(r.Uint32())
		}
		for i := range uint32(200) {
			if s := front.Get(i); s.Phase >= numPhases || s.API >= numAPIs {
				t.Fatalf("%+v", s)
			}
			front.Busy(i)
		}
		for conn, ids := range front.Requests() {
			for _, id := range ids {
				if int(conn) >= 100 || len(id) > MaxIDBytes {
					t.Fatalf("connection %d, id %q", conn, id)
				}
			}
		}
		front.InFlight()
	}
	if err := engine.File().Truncate(0); err == nil {
		t.Error("the file could be shortened: reading it would end the front")
	}
}

func TestOpenRefusesWhatIsNoTable(t *testing.T) {
	for _, b := range [][]byte{nil, []byte("short"), make([]byte, 4096)} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		f.Write(b)
		if _, err := Open(f); err == nil {
			t.Errorf("%d bytes were opened", len(b))
		}
	}
	for _, n := range [][2]int{{0, 1}, {1, 0}, {MaxConns + 1, 1}, {1, MaxRequests + 1}} {
		if _, err := Create(n[0], n[1]); err == nil {
			t.Errorf("%v was made", n)
		}
	}
}
