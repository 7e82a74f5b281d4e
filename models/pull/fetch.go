package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// fetch asks for the bytes of s and writes those that are missing.
func (t *transfer) fetch(ctx context.Context, s span) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := t.watch(cancel)
	defer d.stop()

	t.mu.Lock()
	whole, direct := t.noRanges, t.direct
	t.mu.Unlock()
	header := http.Header{}
	if !whole {
		// What another worker, or a part of an answer before, has brought is not asked for again.
		if s = t.first(s); s.len() == 0 {
			return nil
		}
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", s[0], s[1]-1))
	}
	resp, err := t.ask(ctx, direct, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if s, err = t.checkAnswer(resp, s, whole); err != nil {
		return err
	}
	return t.copy(ctx, d, resp.Body, s)
}

// first returns the first missing part of s.
func (t *transfer) first(s span) span {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := span{s[1], s[1]}
	_ = t.here.missing(s, func(m span) error {
		found = m
		return io.EOF // the first is enough
	})
	return found
}

// ask sends the request to where the last one was redirected to, and to the file's address when that does not work:
// such addresses are signed, and they expire.
func (t *transfer) ask(ctx context.Context, direct string, header http.Header) (*http.Response, error) {
	if direct != "" {
		resp, err := t.web.send(ctx, t.web.client, direct, header)
		f, _ := errors.AsType[*fault](err)
		if err == nil || f == nil {
			return resp, err
		}
		if t.forget(direct); f.temporary {
			return nil, err
		}
	}
	resp, err := t.web.send(ctx, t.login, t.file.url, header)
	if err != nil {
		return nil, err
	}
	if u := resp.Request.URL; u.Host != t.web.origin.Host {
		t.mu.Lock()
		t.direct = u.String()
		t.mu.Unlock()
	}
	return resp, nil
}

// forget drops an address that the file was redirected to.
func (t *transfer) forget(direct string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.direct == direct {
		t.direct = ""
	}
}

// checkAnswer compares an answer's header with what was asked for, and returns the bytes that the answer brings:
// servers may send less than a range.
func (t *transfer) checkAnswer(resp *http.Response, s span, whole bool) (span, error) {
	host := resp.Request.URL.Host
	stale := func(size int64) error {
		return &Error{Kind: ErrServer, What: fmt.Sprintf("%s has %d bytes at %s, and %d in its listing", t.file.path,
			size, host, t.file.size),
			Do: "pull again later: the listing or a mirror is out of date"}
	}
	switch {
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html"):
		return s, &Error{Kind: ErrServer, What: host + " sends a web page instead of " + t.file.path,
			Do: "open a page in a browser: this network may want you to log in first; then pull again"}
	case resp.StatusCode == http.StatusOK && !whole:
		if n := resp.ContentLength; n >= 0 && n != t.file.size {
			return s, stale(n)
		}
		t.mu.Lock()
		t.noRanges, t.limit = true, 1
		t.mu.Unlock()
		return s, temporary("%s sends the whole file instead of a range", host)
	case resp.StatusCode == http.StatusOK:
		if n := resp.ContentLength; n >= 0 && n != t.file.size {
			return s, stale(n)
		}
	case whole:
		return s, temporary("%s sends a range that was not asked for", host)
	default:
		got, size, ok := contentRange(resp.Header.Get("Content-Range"))
		switch {
		case !ok:
			return s, temporary("%s sends a range without saying which (%.60q)", host, resp.Header.Get("Content-Range"))
		case size >= 0 && size != t.file.size:
			return s, stale(size)
		case got[0] != s[0] || got[1] > s[1]:
			return s, temporary("%s sends the bytes %d to %d, asked for %d to %d", host, got[0], got[1]-1, s[0], s[1]-1)
		}
		s = got
	}
	return s, t.checkETag(host, resp.Header.Get("Etag"))
}

// checkETag holds the answers of a host to one ETag, so that a file that changes is not downloaded to its end first.
// The hash in the listing decides: after a second start ETags are not looked at, as some servers give the same bytes
// several.
func (t *transfer) checkETag(host, value string) error {
	if value == "" || t.restarted {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.etag.host != host {
		t.etag = etag{host, value}
	}
	if t.etag.value == value {
		return nil
	}
	t.direct = ""
	if t.changes++; t.changes >= maxChanges {
		return fmt.Errorf("%w: its ETag was %.60s, now %.60s", errChanged, t.etag.value, value)
	}
	return temporary("%s sends another version of the file (ETag %.60s, was %.60s)", host, value, t.etag.value)
}

// copy writes the body, which begins at s[0], to the file. Bytes that are here already are read and dropped. A read
// brings a record of TLS, 16 KiB at most; a write has all up to the next multiple of bufferBytes, unless that takes
// longer than writePause.
func (t *transfer) copy(ctx context.Context, d *watchdog, body io.Reader, s span) error {
	buf := make([]byte, min(bufferBytes, max(s.len(), 1)))
	n, began := int64(0), time.Time{} // the bytes in buf, which belong at the offset at, and when the first one came
	for at := s[0]; at < s[1]; {
		end := min(bufferBytes-at%bufferBytes, s[1]-at)
		m, err := body.Read(buf[n:end])
		if m > 0 {
			d.alive(m)
			if n == 0 {
				began = time.Now()
			}
			n += int64(m)
		}
		if n > 0 && (n == end || err != nil || time.Since(began) >= writePause) {
			if werr := t.write(ctx, d, buf[:n], at); werr != nil {
				return werr
			}
			at, n = at+n, 0
		}
		switch {
		case at == s[1]:
			return nil
		case errors.Is(err, io.EOF):
			return temporary("%s: the answer ends %d bytes early", t.file.path, s[1]-at)
		case err != nil:
			return t.web.transport(ctx, err)
		}
	}
	return nil
}

// write puts the missing ones of b's bytes, which belong at the offset at, into the file.
func (t *transfer) write(ctx context.Context, d *watchdog, b []byte, at int64) error {
	d.pause(true)
	err := t.gate(ctx)
	d.pause(false)
	if err != nil {
		return err
	}
	s := span{at, at + int64(len(b))}
	t.mu.Lock()
	var todo spans
	_ = t.here.missing(s, func(m span) error { todo = append(todo, m); return nil })
	t.mu.Unlock()
	for _, m := range todo {
		if _, err := t.writeAt(t.part, b[m[0]-at:m[1]-at], m[0]); err != nil {
			return fileError(err)
		}
		t.wrote(m)
	}
	return nil
}

// watchdog ends a request that brings less than stallBytes in stallTimeout. A slow one that brings more continues.
type watchdog struct {
	bytes  atomic.Int64
	paused atomic.Bool
	timer  *time.Timer
}

func (t *transfer) watch(cancel context.CancelCauseFunc) *watchdog {
	d := &watchdog{}
	d.timer = time.AfterFunc(math.MaxInt64, func() {
		if d.bytes.Swap(0) < stallBytes && !d.paused.Load() {
			cancel(temporary("%s: the connection brings nothing any more", t.file.path))
			return
		}
		d.timer.Reset(stallTimeout)
	})
	d.timer.Reset(stallTimeout) // not before the field has it
	return d
}

func (d *watchdog) alive(n int)    { d.bytes.Add(int64(n)) }
func (d *watchdog) pause(yes bool) { d.paused.Store(yes) }
func (d *watchdog) stop()          { d.timer.Stop() }
