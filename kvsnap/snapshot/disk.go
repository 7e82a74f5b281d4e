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

// The files of the directory:
//
//	lock                 locked with flock by the daemon that uses the directory
//	<key>.kvsnap         a complete part, of cells or named
//	<key>.kvsnap.tmp     a part being written; left by a crash and removed at the next start
//	quarantine/          parts that failed their checksum, kept for analysis; the oldest are removed first
//
// The cache leaves all other files alone, including files of other format versions.
const (
	lockName      = "lock"
	tempSuffix    = ".tmp"
	quarantineDir = "quarantine"

	// quarantineFiles and a sixteenth of DiskBytes bound the quarantine.
	quarantineFiles = 16
	quarantineShare = 16
)

func (c *Cache) path(key Key) string { return filepath.Join(c.o.Dir, format.Name(key)) }

// openDisk locks the directory and reads headers for ScanBudget. It returns the files that it did not read, newest
// first.
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
				c.ioError("remove an unfinished file", err) // the file remains unused, and the next start tries again
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
	end := time.Now().Add(c.o.ScanBudget) // real time, not Options.Now: the budget bounds the time that the disk takes
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

// scanRest reads the headers that openDisk did not read.
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

// reorder sorts the files by time of writing, which puts the beginnings of chains before their ends.
func (c *Cache) reorder() {
	for _, n := range c.mu.disk.Nodes() {
		c.mu.disk.Refresh(n, diskElem)
	}
}

// scanFile adds one file to the index by its header. The payload is verified when a restore reads it.
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
	if format.Name(key) != f.Name { // the header is intact, so the file was renamed
		c.damaged(f.Name, errors.New("its name belongs to another part"))
		c.addJob(&job{kind: quarantineFile, name: f.Name, key: format.KeyOf(f.Name)})
		return
	}
	if c.mu.index.Get(key) != nil {
		return // written again during the background scan
	}
	named := h.Origin == c.o.Named && c.hasNamed()
	p := &part{raw: h.Raw, foreign: h.Origin != c.o.Origin && !named, created: time.Unix(h.Created, 0),
		used: f.ModTime}
	p.node = index.Node{Key: key, Namespace: h.Namespace, P0: h.P0, P1: h.P1, Before: h.Prefix, After: h.Through,
		Named: named, Owner: p}
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

// readFull reads len(b) bytes at off. A file that ends before that is damaged.
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

// quarantine moves a damaged file to the quarantine and bounds its size. The writer calls it.
func (c *Cache) quarantine(name string) error {
	dir, fsys := filepath.Join(c.o.Dir, quarantineDir), c.o.FS
	err := fsys.Rename(filepath.Join(c.o.Dir, name), filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// The file cannot be moved, so remove it: it must not be found again.
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

// clearQuarantine removes the quarantined files of the namespaces that want accepts, and those whose header no longer
// tells the namespace: they may be anyone's. The writer calls it.
func (c *Cache) clearQuarantine(want func(Namespace) bool) error {
	dir := filepath.Join(c.o.Dir, quarantineDir)
	files, err := c.o.FS.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	var errs []error
	for _, f := range files {
		f.Name = filepath.Join(quarantineDir, f.Name)
		if h, err := c.readHeader(f); err == nil && !want(h.Namespace) {
			continue
		}
		errs = append(errs, c.o.FS.Remove(filepath.Join(c.o.Dir, f.Name)))
	}
	return errors.Join(append(errs, c.o.FS.SyncDir(dir))...)
}

// touchFiles stores the parts' times of last use in their files' times at Close, so that the next start evicts in the
// same order.
func (c *Cache) touchFiles() {
	for _, n := range c.mu.disk.Nodes() {
		if p := of(n); n.Disk.Hits > 0 {
			_ = c.o.FS.SetTime(c.path(n.Key), p.used)
		}
	}
}

// wait waits for the end of a job.
func (c *Cache) wait(ctx context.Context, j *job) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
