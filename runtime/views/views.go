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

// keptBytes bounds the embeddings that are kept after their request has ended: 220 pictures of 1,024 rows for a model
// of width 576, 31 for one of 4,096.
const keptBytes = 512 << 20

// Cache has the views of an engine. Its methods are safe from any goroutine. The zero value is empty.
type Cache struct {
	encode  sync.Mutex // held while one is made
	working atomic.Int32

	mu     sync.Mutex
	idle   chan struct{}           // closed at the end of an encoding; nil: no goroutine waits
	views  map[owned]*list.Element // of *kept, the front is the newest
	order  list.List
	counts runtime.ImageCounts
}

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
}

// View returns the view of the content that hash names. If it is not at hand, encode makes it, one at a time.
func (c *Cache) View(hash [32]byte, ns uint64, sound bool, encode func() (*runtime.View, error)) (
	*runtime.View, error) {
	of := owned{hash, ns}
	if v := c.find(of); v != nil {
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
	if v := c.find(of); v != nil { // another request has encoded it meanwhile
		return v, nil
	}
	begin := time.Now()
	v, err := encode()
	if err != nil {
		return nil, err
	}
	c.keep(of, v, sound, time.Since(begin))
	return v, nil
}

func (c *Cache) find(of owned) *runtime.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.views[of]
	if el == nil {
		return nil
	}
	c.order.MoveToFront(el)
	c.counts.Cached++
	return el.Value.(*kept).view
}

func (c *Cache) keep(of owned, v *runtime.View, sound bool, took time.Duration) {
	k := &kept{of: of, view: v}
	for _, p := range v.Segments {
		k.bytes += int64(len(p.Rows)) * 4
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sound {
		c.counts.Heard += uint64(len(v.Segments))
	} else {
		c.counts.Encoded += uint64(len(v.Segments))
	}
	c.counts.Seconds += took.Seconds()
	c.counts.CacheSize += k.bytes
	if c.views == nil {
		c.views = map[owned]*list.Element{}
	}
	c.views[of] = c.order.PushFront(k)
	for c.counts.CacheSize > keptBytes {
		old := c.order.Remove(c.order.Back()).(*kept)
		delete(c.views, old.of)
		c.counts.CacheSize -= old.bytes
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
