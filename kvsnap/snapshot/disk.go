package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// The directory:
//
//	lock                 taken with flock by the one daemon that uses it
//	<key>.kvsnap         a part; complete, or it would not have this name
//	<key>.kvsnap.tmp     a part being written; left by a crash and removed at the next start
//	quarantine/          parts that failed their checksum, kept for a look at why; the oldest leave first
//
// Everything else is left alone, files of a later format version included.
const (
	lockName      = "lock"
	tempSuffix    = ".tmp"
	quarantineDir = "quarantine"

	// quarantineFiles and a sixteenth of DiskBytes bound the quarantine.
	quarantineFiles = 16
	quarantineShare = 16
)

func (c *Cache) path(key Key) string { return filepath.Join(c.o.Dir, format.Name(key)) }

// openDisk takes the directory and reads headers for ScanBudget. What it did not get to is returned, newest first.
func (c *Cache) openDisk() (rest []FileInfo, err error) {
	fsys, dir := c.o.FS, c.o.Dir
	if err := fsys.Prepare(dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	files, err := fsys.ReadDir(dir)
	if err == nil {
		err = fsys.Prepare(filepath.Join(dir, quarantineDir))
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	c.lock = lock
	var found []FileInfo
	for _, f := range files {
		switch {
		case strings.HasSuffix(f.Name, format.Suffix+tempSuffix):
			if err := fsys.Remove(filepath.Join(dir, f.Name)); err != nil {
				c.ioError("remove an unfinished file", err) // it stays, unused, and the next start tries again
			}
		case strings.HasSuffix(f.Name, format.Suffix):
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b FileInfo) int {
		if d := b.ModTime.Compare(a.ModTime); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	c.mu.unscanned = len(found)
	end := time.Now().Add(c.o.ScanBudget) // how long a disk takes is real time, whatever Options.Now says
	for i, f := range found {
		if time.Now().After(end) {
			rest = found[i:]
			break
		}
		c.scanFile(f)
	}
	c.mu.Lock()
	c.reorder()
	c.mu.Unlock()
	return rest, nil
}

// scanRest reads the headers that Open had no time for.
func (c *Cache) scanRest(files []FileInfo) {
	for _, f := range files {
		c.mu.Lock()
		stop := c.mu.closed
		c.mu.Unlock()
		if stop {
			return
		}
		c.scanFile(f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(files) > 0 {
		c.reorder()
	}
}

// reorder puts the beginnings of chains before their ends: files carry the time they were written at, beginnings first.
func (c *Cache) reorder() {
	for _, n := range c.mu.disk.Nodes() {
		c.mu.disk.Refresh(n, diskElem)
	}
}

// scanFile takes one file into the index by its header; the payload is verified when somebody wants it.
func (c *Cache) scanFile(f FileInfo) {
	h, err := c.readHeader(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.unscanned--
	switch {
	case errors.Is(err, format.ErrVersion):
		c.mu.stats.unknown++
		return
	case errors.Is(err, format.ErrFormat):
		c.damaged(f.Name, err)
		c.addJob(&job{kind: quarantineFile, name: f.Name, key: format.KeyOf(f.Name)})
		return
	case err != nil:
		c.ioError("read a file", err)
		return
	}
	key := h.Key()
	if format.Name(key) != f.Name { // renamed by hand: the header is intact, so it is not what the name says
		c.damaged(f.Name, errors.New("its name belongs to another part"))
		c.addJob(&job{kind: quarantineFile, name: f.Name, key: format.KeyOf(f.Name)})
		return
	}
	if c.mu.index.Get(key) != nil {
		return // written anew while the background scan was on its way
	}
	p := &part{raw: h.Raw, foreign: h.Origin != c.o.Origin, created: time.Unix(h.Created, 0), used: f.ModTime}
	p.node = index.Node{Key: key, Namespace: h.Namespace, P0: h.P0, P1: h.P1, Before: h.Prefix, After: h.Through, Owner: p}
	if !p.foreign {
		p.node.Tokens = h.Tokens
		c.mu.index.Add(&p.node)
	}
	c.mu.disk.PushOldest(&p.node, f.Size, diskElem)
}

// readHeader reads and verifies a file's header.
func (c *Cache) readHeader(f FileInfo) (h format.Header, err error) {
	file, err := c.o.FS.Open(filepath.Join(c.o.Dir, f.Name))
	if err != nil {
		return h, err
	}
	defer file.Close()
	b := make([]byte, min(4096, f.Size))
	if err := readFull(file, b, 0); err != nil {
		return h, err
	}
	size, err := format.HeaderSize(b, f.Size)
	if err != nil {
		return h, err
	}
	if size > len(b) {
		more := make([]byte, size)
		n := copy(more, b)
		if err := readFull(file, more[n:], int64(n)); err != nil {
			return h, err
		}
		b = more
	}
	return format.Parse(b, f.Size)
}

// readFull reads len(b) bytes at off. A file that ends before is a damaged one.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the file ends after %d bytes", format.ErrFormat, off+int64(n))
	default:
		return err
	}
}

// quarantine moves a file out of the way and keeps the quarantine small. Called by the writer.
func (c *Cache) quarantine(name string) error {
	dir, fsys := filepath.Join(c.o.Dir, quarantineDir), c.o.FS
	err := fsys.Rename(filepath.Join(c.o.Dir, name), filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// It cannot be kept aside; it must not stay where it would be believed.
		return errors.Join(err, fsys.Remove(filepath.Join(c.o.Dir, name)))
	}
	if err := errors.Join(fsys.SyncDir(dir), fsys.SyncDir(c.o.Dir)); err != nil {
		return err
	}
	files, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b FileInfo) int { return b.ModTime.Compare(a.ModTime) })
	var sum int64
	for i, f := range files {
		if sum += f.Size; i >= quarantineFiles || sum > c.o.DiskBytes/quarantineShare {
			err = errors.Join(err, fsys.Remove(filepath.Join(dir, f.Name)))
		}
	}
	return err
}

// touchFiles writes down when parts were last used, so that the next start evicts in the right order. At the end only.
func (c *Cache) touchFiles() {
	for _, n := range c.mu.disk.Nodes() {
		if p := of(n); n.Disk.Hits > 0 {
			_ = c.o.FS.SetTime(c.path(n.Key), p.used)
		}
	}
}

// wait waits for a job's end.
func (c *Cache) wait(ctx context.Context, j *job) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
