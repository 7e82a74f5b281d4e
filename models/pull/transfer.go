package pull

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// How a file is downloaded.
const (
	segmentBytes    = 32 << 20 // asked for at a time: the hash follows the beginning of the file at most so far behind
	minSegmentBytes = 1 << 20
	bufferBytes     = 256 << 10 // written at a time
	hashBytes       = 1 << 20

	checkpointPause = 250 * time.Millisecond // between two states on the disk
	slowSync        = 250 * time.Millisecond // receiving pauses while the disk takes longer than this for one
	reportPause     = 100 * time.Millisecond // between two reports of progress
	writePause      = 100 * time.Millisecond // bytes of a slow connection are written after this time

	stallTimeout  = 30 * time.Second // a connection must bring stallBytes in this time
	stallBytes    = 4 << 10
	rangeAttempts = 10              // in a row that bring nothing, with pauses of 0.5 s to 30 s: two minutes
	silenceLimit  = 2 * time.Minute // of attempts that bring nothing, and the pauses between them
	maxChanges    = 4               // answers with another ETag before the download begins again
)

// Errors that end one download of a file and may begin another.
var (
	errHash    = errors.New("the hash of the file is not the one in its listing")
	errChanged = errors.New("the file at the server changes while it is downloaded")
	errNoGGUF  = errors.New("the server sends no GGUF file")
)

// transfer downloads one file to part, in parallel ranges.
//
// Goroutines: a worker for each connection, which takes the first bytes that are missing and asks for them; the hasher,
// which follows the end of what is here from the beginning on; the checkpointer, which puts bytes and state on the
// disk.
type transfer struct {
	web     *web
	login   doer // of requests to the file's address; redirects lead away from it
	file    remote
	part    *os.File
	state   string // path
	largest int64  // bytes asked for at a time, at most
	sync    func(*os.File) error
	writeAt func(f *os.File, b []byte, at int64) (int, error)
	report  func(done int64)

	mu          sync.Mutex
	here        spans         // bytes in part; owned by mu
	taken       spans         // bytes that a worker has asked for and that are not here yet, and more; owned by mu
	changed     chan struct{} // closed and replaced when here grows; owned by mu
	direct      string        // where file.url redirects to, "" = unknown; owned by mu
	etag        etag          // of the last answers; owned by mu
	changes     int           // answers with another ETag since the last start; owned by mu
	noRanges    bool          // the server ignores Range; owned by mu
	segment     int64         // bytes that take gives at most; set by run
	active      int           // workers; owned by mu
	restarted   bool          // restart was called
	limit       int           // workers that the server stands; owned by mu
	resumeAt    time.Time     // the server asked for a pause until then; owned by mu
	syncing     time.Time     // when the sync in progress began; zero = none; owned by mu
	synced      chan struct{} // closed when that sync ends; owned by mu
	savedTotal  int64         // bytes that the state on the disk names; owned by mu
	savedHashed int64         // those of them that its hash covers; owned by mu

	received atomic.Int64 // bytes of this run that were missing before

	hashMu sync.Mutex
	hash   hash.Hash // owned by hashMu
	hashed int64     // owned by hashMu; read by the checkpointer
}

// etag is an answer's ETag and the host that gave it: hosts name the same bytes in different ways.
type etag struct{ host, value string }

// resume takes the state on the disk over, if it is one of this file, and returns the number of bytes that are here.
func (t *transfer) resume() int64 {
	want := state{Sum: t.file.sum.String(), Size: t.file.size}
	s, err := readState(t.state, want)
	if err != nil {
		s = want
	}
	t.here = s.Spans
	t.hash, t.hashed = restoreHash(s, t.file.sum)
	t.savedTotal, t.savedHashed = -1, -1
	return t.here.total()
}

// restart forgets everything that is here.
func (t *transfer) restart() {
	t.here, t.taken, t.changes, t.etag, t.direct = nil, nil, 0, etag{}, ""
	t.restarted = true
	t.savedTotal, t.savedHashed = -1, -1 // the state on the disk is to be replaced
	t.hash, t.hashed = t.file.sum.new(t.file.size), 0
}

// run downloads the missing bytes, over the given number of connections, and checks the hash. Whatever the error, the
// state on the disk is that of the bytes that are here.
func (t *transfer) run(ctx context.Context, connections int) error {
	t.changed, t.noRanges = make(chan struct{}), false
	missing := t.file.size - t.here.total()
	t.segment = max(min(t.largest, missing/int64(4*connections)), min(t.largest, minSegmentBytes))
	t.active = int(min(int64(connections), (missing+t.segment-1)/t.segment))
	t.limit = t.active

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group, inner := errgroup.WithContext(ctx)
	for range t.active {
		group.Go(func() error { return t.work(inner) })
	}
	group.Go(func() error { return t.hashAll(inner) })

	done := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { t.checkpoints(done, cancel) })
	beside.Go(func() { t.reports(done) })
	err := group.Wait()
	close(done)
	beside.Wait()
	t.report(t.total())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if serr := t.checkpoint(); err == nil && serr != nil {
		err = fileError(serr)
	}
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", t.hash.Sum(nil)); got != t.file.sum.hex {
		return fmt.Errorf("%w: %s, want %s", errHash, got, t.file.sum.hex)
	}
	return nil
}

func (t *transfer) total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.here.total()
}

// reports tells the progress until done is closed.
func (t *transfer) reports(done <-chan struct{}) {
	ticker := time.NewTicker(reportPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.report(t.total())
		case <-done:
			return
		}
	}
}

// checkpoints puts the state on the disk until done is closed. An error ends the download: bytes after it might be
// lost.
func (t *transfer) checkpoints(done <-chan struct{}, cancel context.CancelCauseFunc) {
	timer := time.NewTimer(checkpointPause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if err := t.checkpoint(); err != nil {
				cancel(fileError(err))
				return
			}
			timer.Reset(checkpointPause)
		case <-done:
			return
		}
	}
}

// checkpoint puts the bytes that are here on the disk, then the state that names them.
func (t *transfer) checkpoint() error {
	s := state{Version: stateVersion, URL: t.file.url, Sum: t.file.sum.String(), Size: t.file.size}
	t.hashMu.Lock() // before here is copied: Hashed is at most its prefix
	s.Hashed, s.Hash = t.hashed, saveHash(t.hash)
	t.hashMu.Unlock()
	if s.Hash == nil {
		s.Hashed = 0
	}
	t.mu.Lock()
	s.Spans = append(spans{}, t.here...)
	if total := s.Spans.total(); total == t.savedTotal && s.Hashed == t.savedHashed {
		t.mu.Unlock()
		return nil
	}
	t.syncing, t.synced = time.Now(), make(chan struct{})
	t.mu.Unlock()
	err := t.sync(t.part)
	if err == nil {
		err = writeState(t.state, s, t.sync)
	}
	t.mu.Lock()
	t.syncing = time.Time{}
	close(t.synced)
	if err == nil {
		t.savedTotal, t.savedHashed = s.Spans.total(), s.Hashed
	}
	t.mu.Unlock()
	return err
}

// gate waits while the disk is behind: bytes that came during a sync are lost with the process.
func (t *transfer) gate(ctx context.Context) error {
	for {
		t.mu.Lock()
		began, synced := t.syncing, t.synced
		t.mu.Unlock()
		if began.IsZero() || time.Since(began) < slowSync {
			return nil
		}
		select {
		case <-synced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wrote notes that the bytes of s are in part.
func (t *transfer) wrote(s span) {
	t.mu.Lock()
	before := t.here.total()
	t.here = t.here.add(s)
	t.received.Add(t.here.total() - before)
	close(t.changed)
	t.changed = make(chan struct{})
	t.mu.Unlock()
}

// hashAll hashes the file from the beginning on, as it becomes whole.
func (t *transfer) hashAll(ctx context.Context) error {
	buf := make([]byte, hashBytes)
	for t.hashed < t.file.size {
		t.mu.Lock()
		end, changed := t.here.prefix(), t.changed
		t.mu.Unlock()
		if end == t.hashed {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		n, err := t.part.ReadAt(buf[:min(int64(len(buf)), end-t.hashed)], t.hashed)
		if n == 0 {
			return fileError(fmt.Errorf("read %s: %w", t.part.Name(), err))
		}
		const magic = "GGUF"
		if t.hashed == 0 && n >= len(magic) && string(buf[:len(magic)]) != magic {
			return fmt.Errorf("%w: it begins with %.16q", errNoGGUF, buf[:min(n, 16)])
		}
		t.hashMu.Lock()
		t.hash.Write(buf[:n])
		t.hashed += int64(n)
		t.hashMu.Unlock()
	}
	return nil
}

// work downloads missing spans until none is left.
func (t *transfer) work(ctx context.Context) error {
	failures, last := 0, int64(-1) // failures in a row during which nothing arrived, and what had arrived then
	silent := time.Duration(0)     // what they took, without the pauses that the server asked for
	for {
		s, ok := t.take()
		if !ok {
			return nil
		}
		if err := t.pause(ctx); err != nil {
			return err
		}
		began := time.Now()
		err := t.fetch(ctx, s)
		t.give(s)
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*fault](err)
		if !ok || !f.temporary || ctx.Err() != nil {
			return err
		}
		if now := t.received.Load(); now != last {
			failures, last, silent = 0, now, 0
		} else {
			silent += time.Since(began)
		}
		if f.busy {
			t.slowDown(f)
		}
		if failures++; failures == rangeAttempts || silent >= silenceLimit {
			return gaveUp(f)
		}
		began = time.Now()
		if err := t.web.wait(ctx, failures-1, f); err != nil {
			return err
		}
		if f.after == 0 {
			silent += time.Since(began)
		}
	}
}

// take returns the first bytes that are missing and that no worker has asked for. ok is false when there are none, and
// when the server stands fewer workers than there are.
func (t *transfer) take() (s span, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active > t.limit {
		t.active--
		return span{}, false
	}
	if t.noRanges {
		s = span{0, t.file.size}
		ok = t.here.total() < t.file.size
	} else {
		both := append(spans{}, t.here...)
		for _, e := range t.taken {
			both = both.add(e)
		}
		s = both.gap(t.file.size, t.segment)
		ok = s.len() > 0
	}
	if !ok {
		t.active--
		return span{}, false
	}
	t.taken = append(t.taken, s)
	return s, true
}

// give returns what take gave.
func (t *transfer) give(s span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.taken {
		if e == s {
			t.taken = append(t.taken[:i], t.taken[i+1:]...)
			return
		}
	}
}

// slowDown takes one worker away, and lets the others pause as long as the server says.
func (t *transfer) slowDown(f *fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = max(1, min(t.limit, t.active)-1)
	if at := time.Now().Add(f.after); f.after <= maxRetryAfter && at.After(t.resumeAt) {
		t.resumeAt = at
	}
}

// pause waits until the server may be asked again.
func (t *transfer) pause(ctx context.Context) error {
	t.mu.Lock()
	left := time.Until(t.resumeAt)
	t.mu.Unlock()
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
