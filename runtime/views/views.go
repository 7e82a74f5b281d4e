// Package views keeps what an engine has made of pictures and sounds, and says whether it makes more.
package views

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

const (
	// keptBytes bounds the embeddings that are kept after their request has ended, those that are being stored
	// included: 220 pictures of 1,024 rows for a model of width 576, 31 for one of 4,096. They have no other end: what
	// the store did not take stays until newer ones need its place.
	keptBytes = 512 << 20
	// storingBytes bounds those that are being stored, which make no room for others. One is stored whatever its size.
	storingBytes = keptBytes / 2
)

// Cache has the views of an engine. Its methods are safe from any goroutine. The zero value is empty.
type Cache struct {
	encode  sync.Mutex // held while one is made
	working atomic.Int32

	mu     sync.Mutex
	idle   chan struct{}           // closed at the end of an encoding; nil: no goroutine waits
	views  map[owned]*list.Element // of *kept, the front is the newest
	order  list.List
	counts runtime.ImageCounts
	store  runtime.ViewStore // nil: views are in memory alone
	// storing are the bytes of the views that the store reads. Invariant: counts.CacheSize is at most keptBytes, unless
	// one view alone is larger, and includes storing.
	storing int64
}

var _ runtime.KeptViews = (*Cache)(nil)

// owned names a view: its content, and the namespace that has sent it. What another user has sent is encoded again: the
// time of an answer would tell that it was sent before.
type owned struct {
	hash [32]byte
	ns   uint64
}

type kept struct {
	of    owned
	view  *runtime.View
	bytes int64
	// storing: the store reads it, so that it takes memory until then, also if it is forgotten.
	storing, forgotten bool
}

// View returns the view of the content that hash names. If neither memory nor the store has it, encode makes it, one at
// a time.
func (c *Cache) View(hash [32]byte, ns uint64, sound bool, encode func() (*runtime.View, error)) (
	*runtime.View, error) {
	of := owned{hash, ns}
	v, store := c.find(of)
	if v == nil && store != nil {
		if v = store.Load(hash, ns); v != nil {
			v, _ = c.keep(of, v, false, func() { c.counts.Loaded++ })
		}
	}
	if v != nil {
		return v, nil
	}
	c.working.Add(1)
	c.encode.Lock()
	defer func() {
		c.encode.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.working.Add(-1) == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	}()
	if v, _ := c.find(of); v != nil { // another request has encoded it meanwhile
		return v, nil
	}
	begin := time.Now()
	v, err := encode()
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	v, stored := c.keep(of, v, store != nil, func() {
		if sound {
			c.counts.Heard += uint64(len(v.Segments))
		} else {
			c.counts.Encoded += uint64(len(v.Segments))
		}
		c.counts.Seconds += took.Seconds()
	})
	if stored != nil {
		store.Store(hash, ns, v, stored)
	}
	return v, nil
}

// find returns a view that is in memory, or nil, and the store.
func (c *Cache) find(of owned) (*runtime.View, runtime.ViewStore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.views[of]
	if el == nil {
		return nil, c.store
	}
	c.order.MoveToFront(el)
	c.counts.Cached++
	return el.Value.(*kept).view, c.store
}

// keep keeps v, unless one of this name is in memory, and returns the one that is. count is called with the lock held.
// If v is to be stored, stored is what the store calls when it has read v; nil: too much is being stored, or v is not
// the one that is kept.
func (c *Cache) keep(of owned, v *runtime.View, store bool, count func()) (_ *runtime.View, stored func()) {
	k := &kept{of: of, view: v}
	for _, p := range v.Segments {
		k.bytes += int64(len(p.Rows)) * 4
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count()
	if el := c.views[of]; el != nil { // another request has loaded it meanwhile
		return el.Value.(*kept).view, nil
	}
	if c.views == nil {
		c.views = map[owned]*list.Element{}
	}
	if store && (c.storing == 0 || c.storing+k.bytes <= storingBytes) {
		k.storing, stored = true, func() { c.stored(k) }
		c.storing += k.bytes
	}
	c.views[of] = c.order.PushFront(k)
	c.counts.CacheSize += k.bytes
	c.trim()
	return v, stored
}

// stored ends the storing of k.
func (c *Cache) stored(k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.storing = false
	if c.storing -= k.bytes; k.forgotten {
		c.counts.CacheSize -= k.bytes
	}
	c.trim()
}

// trim drops the oldest views until the others have room. The lock is held.
func (c *Cache) trim() {
	for el := c.order.Back(); el != nil && c.counts.CacheSize > keptBytes; {
		before := el.Prev()
		if !el.Value.(*kept).storing {
			c.drop(el)
		}
		el = before
	}
}

// drop removes an element. The lock is held.
func (c *Cache) drop(el *list.Element) {
	old := c.order.Remove(el).(*kept)
	delete(c.views, old.of)
	if old.forgotten = old.storing; !old.storing {
		c.counts.CacheSize -= old.bytes
	}
}

// StoreIn implements runtime.KeptViews.
func (c *Cache) StoreIn(s runtime.ViewStore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = s
}

// Forget implements runtime.KeptViews.
func (c *Cache) Forget(of func(hash [32]byte, ns uint64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, el := range c.views {
		if of(name.hash, name.ns) {
			c.drop(el)
		}
	}
}

// Encoding implements runtime.Viewer.
func (c *Cache) Encoding() bool { return c.working.Load() > 0 }

// Wait implements runtime.Viewer's WaitEncoded.
func (c *Cache) Wait(d time.Duration) {
	if !c.Encoding() || d <= 0 {
		return
	}
	c.mu.Lock()
	if !c.Encoding() {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// Counts implements runtime.Viewer's ImageCounts.
func (c *Cache) Counts() runtime.ImageCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Close runs f when nothing is being made any more.
func (c *Cache) Close(f func()) {
	c.encode.Lock()
	defer c.encode.Unlock()
	f()
}

// Mark names a projector by its size and its beginning, which has all of its metadata and the first weights.
func Mark(path string) (mark [32]byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return mark, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return mark, 0, err
	}
	h := sha256.New()
	fmt.Fprintln(h, st.Size())
	if _, err = io.CopyN(h, f, min(st.Size(), 1<<20)); err != nil {
		return mark, 0, err
	}
	return [32]byte(h.Sum(nil)), st.Size(), nil
}

// AppendRows appends the ids of the n rows of a segment of the content that hash names.
func AppendRows(dst []runtime.Token, hash [32]byte, segment, n int) []runtime.Token {
	var in [40]byte
	copy(in[:], hash[:])
	binary.LittleEndian.PutUint32(in[32:], uint32(segment))
	for i := 0; i < n; {
		binary.LittleEndian.PutUint32(in[36:], uint32(i))
		sum := sha256.Sum256(in[:])
		for k := 0; k < len(sum) && i < n; k += 4 {
			dst = append(dst, runtime.ImageToken(binary.LittleEndian.Uint32(sum[k:]), i == 0))
			i++
		}
	}
	return dst
}
