package views

import (
	"errors"
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
