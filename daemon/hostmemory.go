package daemon

import (
	"encoding/json"
	"time"
)

// The host tier's cap changes while the daemon runs: a front divides one budget among its engine processes, and a
// daemon of one process gives memory back that other programs need.

// lookEvery is the interval at which a host tier tells what it holds, or gives memory back.
const lookEvery = time.Second

// watchHostTier keeps the host tier within what the machine can spare, or tells the front what it holds, until done is
// closed.
func (s *Server) watchHostTier(l *loop, done <-chan struct{}) {
	if l.stores.Cap() == 0 {
		return
	}
	f := s.front
	if f != nil {
		f.resizeHostTier(l) // the cap may have been sent while the model was read
	}
	look := l.stores.GiveBack(s.overrides.memory)
	if f != nil {
		look = func() { f.table.SetHostTier(l.stores.HostBytes()) }
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		look()
		select {
		case <-t.C:
		case <-done:
			return
		}
	}
}

// hearHostTier takes the cap of the host tier that the front has sent.
func (f *frontLink) hearHostTier(s *Server, body []byte) {
	var n int64
	if err := json.Unmarshal(body, &n); err != nil || n < 0 {
		s.log.Error("the host tier's size, of the front", "error", err, "bytes", n)
		return
	}
	f.hostTier.Store(n)
	if l := s.loop.Load(); l != nil {
		go f.resizeHostTier(l) // unmapping takes time
	}
}

// resizeHostTier sets the cap that the front has sent last, if it has sent one: whichever of several calls comes last.
func (f *frontLink) resizeHostTier(l *loop) {
	f.resizing.Lock()
	defer f.resizing.Unlock()
	if n := f.hostTier.Load(); n > 0 {
		l.stores.Resize(n)
	}
}
