package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// Name names bytes that are no cells: a hash of what they were made of.
type Name [nameWords * 4]byte

// nameWords is the number of 32-bit words of a name. In the part's file they are its tokens, at [0, nameWords).
const nameWords = 8

func (n Name) words() []Token {
	words := make([]Token, nameWords)
	for i := range words {
		words[i] = Token(binary.LittleEndian.Uint32(n[4*i:]))
	}
	return words
}

// nameOf is the inverse of words, of a part of any length: a file may have been written by anything.
func nameOf(words []Token) (n Name) {
	for i, w := range words[:min(len(words), nameWords)] {
		binary.LittleEndian.PutUint32(n[4*i:], uint32(w))
	}
	return n
}

func (c *Cache) hasNamed() bool { return c.o.Named != format.Origin{} }

// named returns the record of a named part, without bytes.
func (c *Cache) named(ns Namespace, name Name) *part {
	p := &part{created: c.o.Now()}
	n := &p.node
	n.Namespace, n.P1, n.Tokens, n.Named, n.Owner = ns, nameWords, name.words(), true, p
	n.Before, n.After = format.PrefixHashes(n.Tokens, 0)
	h := c.header(p)
	n.Key = h.Key()
	return p
}

// PutNamed stores bytes under a name of a namespace, on disk alone: without a disk tier it fails with ErrNoDisk. buf
// belongs to the cache afterwards, even on an error. PutNamed never waits: the file is written in the background, and
// not at all where so much waits to be written that Put would keep a part in memory alone. What is stored already is
// marked as used.
func (c *Cache) PutNamed(ns Namespace, name Name, buf *Buffer) error {
	if !c.hasNamed() || c.diskErr != nil {
		buf.Release()
		return ErrNoDisk
	}
	p := c.named(ns, name)
	p.buf, p.raw = buf, int64(len(buf.bytes))
	c.mu.Lock()
	if old := c.mu.index.Get(p.node.Key); old != nil && !c.mu.closed {
		c.touch(old)
		c.mu.Unlock()
		buf.Release()
		return nil
	}
	evicted, err := c.put(p, nil)
	c.mu.Unlock()
	release(evicted)
	if err != nil {
		buf.Release()
		return fmt.Errorf("store named bytes: %w", err)
	}
	return nil
}

// ReadNamed calls use with the bytes of a name, at most so many, which are valid until use returns. It waits for the
// file until ctx ends, so the decode loop must not call it. An error of use that is a format.ErrFormat says that the
// bytes are not what they should be: the file is set aside like a damaged one. The errors are those of use and of ctx,
// ErrNotFound, ErrTooLarge, ErrClosed, and those of the file.
func (c *Cache) ReadNamed(ctx context.Context, ns Namespace, name Name, most int64, use func([]byte) error) error {
	if !c.hasNamed() {
		return ErrNotFound
	}
	key, ready := c.named(ns, name).node.Key, make(chan struct{}, 1)
	r, err := c.fetchNamed(key, most, func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		switch p, status := r.Next(); status {
		case Ready:
			if err := use(p.Bytes); err != nil {
				c.refuse(key, err)
				return err
			}
			return nil
		case Waiting:
			select {
			case <-ready:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return r.Err()
		}
	}
}

func (c *Cache) fetchNamed(key Key, most int64, notify func()) (*Restore, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, ErrClosed
	}
	n := c.mu.index.Get(key)
	switch {
	case n == nil:
		return nil, ErrNotFound
	case of(n).raw > most:
		return nil, fmt.Errorf("named bytes: %d, of at most %d: %w", of(n).raw, most, ErrTooLarge)
	}
	return c.restore(n, notify), nil
}

// refuse sets the file of a named part aside if err says that its bytes are not what they should be.
func (c *Cache) refuse(key Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.mu.index.Get(key); n != nil && errors.Is(err, format.ErrFormat) && !c.mu.closed {
		c.readFailed(of(n), err)
		c.check()
	}
}
