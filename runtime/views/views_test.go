package views

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

func view(rows int) *runtime.View {
	return &runtime.View{Segments: []runtime.ViewSegment{{N: 1, Rows: make([]float32, rows)}}}
}

// TestCache: a view is made once for each namespace, what fails is made again, and the oldest go.
func TestCache(t *testing.T) {
	var c Cache
	made := 0
	ask := func(hash byte, ns uint64, size int) *runtime.View {
		t.Helper()
		v, err := c.View([32]byte{hash}, ns, hash == 2, func() (*runtime.View, error) {
			made++
			return view(size), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := ask(1, 0, 10)
	if ask(1, 0, 10) != first || ask(1, 7, 10) == first || made != 2 {
		t.Errorf("%d made", made)
	}
	failure := errors.New("no")
	if _, err := c.View([32]byte{3}, 0, false, func() (*runtime.View, error) { return nil, failure }); err != failure {
		t.Error(err)
	}
	ask(3, 0, 10)
	ask(2, 0, 10)
	if n := c.Counts(); n.Encoded != 3 || n.Heard != 1 || n.Cached != 1 || n.CacheSize != 4*40 {
		t.Errorf("%+v", n)
	}
	ask(4, 0, keptBytes/4-15) // all but one of the others make room
	if n := c.Counts(); n.CacheSize > keptBytes || n.CacheSize != keptBytes-4*5 {
		t.Errorf("%+v", n)
	}
	if made = 0; ask(1, 0, 10) == first || made != 1 {
		t.Error("the oldest is still there")
	}
}

// shelf is a store of views.
type shelf struct {
	mu     sync.Mutex
	views  map[owned]*runtime.View
	loads  int
	during func() // called by Load
}

func (s *shelf) Load(hash [32]byte, ns uint64) *runtime.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads++; s.during != nil {
		s.during()
	}
	return s.views[owned{hash, ns}]
}

func (s *shelf) Store(hash [32]byte, ns uint64, v *runtime.View, done func()) {
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[owned{hash, ns}] = v
}

// TestStore: what is made is stored, what is stored is not made again, and neither is what is in memory looked for.
func TestStore(t *testing.T) {
	s := &shelf{views: map[owned]*runtime.View{}}
	made := 0
	ask := func(c *Cache, hash byte, ns uint64) *runtime.View {
		t.Helper()
		v, err := c.View([32]byte{hash}, ns, false, func() (*runtime.View, error) {
			if made++; hash == 9 {
				return nil, runtime.ErrAborted
			}
			return view(10), nil
		})
		if (hash == 9) != (err != nil) {
			t.Fatal(err)
		}
		return v
	}
	for run, want := range []runtime.ImageCounts{{Encoded: 3, Cached: 1, CacheSize: 120},
		{Loaded: 3, Cached: 1, CacheSize: 120}} {
		var c Cache
		c.StoreIn(s)
		first := ask(&c, 1, 0)
		if ask(&c, 1, 0) != first || ask(&c, 1, 7) == first {
			t.Errorf("run %d: another view", run)
		}
		ask(&c, 2, 0)
		ask(&c, 9, 0)
		got := c.Counts()
		got.Seconds = 0
		if got != want || len(s.views) != 3 || s.views[owned{[32]byte{1}, 0}] != first {
			t.Errorf("run %d: %+v, want %+v; %d stored", run, got, want, len(s.views))
		}
	}
	if made != 5 || s.loads != 8 {
		t.Errorf("%d made, %d looked for", made, s.loads)
	}
	// Of two requests that load it, both have the one that is kept.
	var c Cache
	c.StoreIn(s)
	var other *runtime.View
	s.during = func() {
		s.during = nil
		c.keep(owned{[32]byte{1}, 0}, view(10), false, func() {})
		other, _ = c.find(owned{[32]byte{1}, 0})
	}
	if v := ask(&c, 1, 0); v != other || c.Counts().CacheSize != 40 || c.order.Len() != 1 {
		t.Errorf("%p and %p, %+v", v, other, c.Counts())
	}
	// Forgotten ones are looked for again.
	ask(&c, 1, 7)
	ask(&c, 2, 7)
	c.Forget(func(hash [32]byte, ns uint64) bool { return hash[0] == 1 && ns == 7 })
	if got := c.Counts(); got.CacheSize != 80 || c.order.Len() != 2 || len(c.views) != 2 {
		t.Errorf("%+v", got)
	}
	before := s.loads
	if ask(&c, 1, 7); s.loads != before+1 {
		t.Error("it was not forgotten")
	}
}

// slow is a store that reads views until it is told to end.
type slow []func()

func (s *slow) Load([32]byte, uint64) *runtime.View                      { return nil }
func (s *slow) Store(_ [32]byte, _ uint64, _ *runtime.View, done func()) { *s = append(*s, done) }

// TestMemoryOfASlowStore: views that a store reads count until it has, and with the others stay within the bound. What
// exceeds the bound of stored ones is kept in memory alone.
func TestMemoryOfASlowStore(t *testing.T) {
	var s slow
	var c Cache
	c.StoreIn(&s)
	made, rows := 0, make([]float32, 9*keptBytes/16) // 4 bytes each, which all views share and the system never gives
	ask := func(hash byte, quarters int) {
		t.Helper()
		_, err := c.View([32]byte{hash}, 0, false, func() (*runtime.View, error) {
			made++
			return &runtime.View{Segments: []runtime.ViewSegment{{N: 1, Rows: rows[:quarters*keptBytes/16]}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(quarters, storing, views int) {
		t.Helper()
		if n := c.Counts().CacheSize; n != int64(quarters)*keptBytes/4 || c.storing != int64(storing)*keptBytes/4 ||
			c.order.Len() != views {
			t.Errorf("%d bytes in %d views, %d of them being stored; want %d, %d and %d quarters", n, c.order.Len(),
				c.storing, quarters, views, storing)
		}
	}
	for hash := range byte(8) {
		ask(hash, 1)
	}
	want(4, 2, 4)
	if len(s) != 2 {
		t.Fatalf("%d are stored, want 2", len(s))
	}
	ask(0, 1) // it is being stored, and older than the others
	ask(1, 1)
	if ask(7, 1); made != 8 {
		t.Errorf("%d of them were made again", made-8)
	}
	c.Forget(func(hash [32]byte, _ uint64) bool { return hash[0] == 0 || hash[0] == 7 })
	want(3, 2, 2) // the first one is still read
	s[0]()
	want(2, 1, 2)
	s[1]()
	want(2, 0, 2)
	ask(20, 9) // alone it exceeds the bound: it is kept while it is stored
	want(9, 9, 1)
	ask(21, 1)
	want(9, 9, 1)
	s[2]()
	want(0, 0, 0)
	if len(s) != 3 {
		t.Errorf("%d were stored, want 3", len(s))
	}
}

// TestWait: a wait ends with the encoding, and not before, unless its time is over.
func TestWait(t *testing.T) {
	var c Cache
	c.Wait(time.Hour) // nothing is encoded
	begun, goOn, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		_, err := c.View([32]byte{1}, 0, false, func() (*runtime.View, error) {
			begun <- true
			<-goOn
			return view(1), nil
		})
		if err != nil {
			t.Error(err)
		}
		close(ended)
	}()
	<-begun
	if !c.Encoding() {
		t.Error("nothing is encoded")
	}
	c.Wait(0)
	c.Wait(time.Nanosecond)
	waited := make(chan bool)
	go func() {
		c.Wait(time.Hour)
		close(waited)
	}()
	close(goOn)
	<-waited
	<-ended
	if c.Encoding() {
		t.Error("it is still encoded")
	}
	closed := false
	if c.Close(func() { closed = true }); !closed {
		t.Error("it is not closed")
	}
}
