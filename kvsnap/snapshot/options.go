package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

var (
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("snapshot cache is closed")
	// ErrTooLarge: the part is larger than the host tier.
	ErrTooLarge = errors.New("part is larger than the cache")
	// ErrNoRoom: everything in the host tier is pinned or being restored.
	ErrNoRoom = errors.New("no room: everything in the cache is pinned or in use")
	// ErrNoPrefix: the positions before the part are not cached, so it cannot be restored. Continue at the length that
	// Lookup reports.
	ErrNoPrefix = errors.New("the positions before this part are not cached")
	// ErrNotFound: no part has this key.
	ErrNotFound = errors.New("no such part")
	// ErrNoDisk: there is no disk tier; DiskError says why.
	ErrNoDisk = errors.New("no disk tier")
)

// Options open a cache. Only Origin is required.
type Options struct {
	// Origin is the engine and model that compute the cells. A part of another origin is never restored.
	Origin format.Origin
	// Named is the origin of named parts (PutNamed). The zero value: there are none. It must not be Origin, or named
	// bytes could be taken for cells.
	Named format.Origin
	// RAMBytes caps the host tier, mapped bytes of payloads; Resize changes it. 0 = DefaultRAMBytes of the free memory.
	RAMBytes int64
	// Dir is the disk tier's directory. It is made with mode 0700; an existing one that other users can reach is
	// refused. "" = no disk tier.
	Dir string
	// DiskBytes caps the files in Dir; required with Dir.
	DiskBytes int64
	// QueueBytes caps the parts waiting to be written. Further parts remain in memory only and are counted as dropped.
	// 0 = a quarter of the host tier's cap.
	QueueBytes int64
	// WholeParts says that the model's memory cannot remove a range of positions (recurrent), so that a
	// match must end where a part ends.
	WholeParts bool
	// ScanBudget is the longest time for which Open reads headers; the others are read in the background. 0 = 2 s.
	ScanBudget time.Duration
	// Seed of the index's hashes; 0 = random. For tests.
	Seed uint64
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Failed is called for every damaged file and every failed disk operation; may be nil. The cache's lock is held:
	// Failed must neither block nor call the cache.
	Failed func(what string, err error)
	// Scanned is called once, from a goroutine of the cache, when the headers of all files have been read; not without
	// a disk tier. It must not block. May be nil.
	Scanned func()
	// FS is the file system; nil = the real one.
	FS FS
}

// idleShare is the divisor of the host tier's cap for memory that is kept for the next parts, in addition.
const idleShare = 16

// hostShare is the divisor of the free memory for the host tier's default. Programs that start later need memory too,
// and swapping costs more than a cached prefix saves.
const hostShare = 4

// DefaultRAMBytes returns the host tier's default cap, a quarter of the available memory; 0 (no host tier) when the
// system does not report it. Then --cache-ram is needed.
func DefaultRAMBytes(m hostmem.Memory) int64 { return int64(m.Available / hostShare) }

func (o *Options) fill() error {
	if o.Origin.Fingerprint == (format.Hash{}) {
		return errors.New("snapshot cache: Origin.Fingerprint is required to tell this model's snapshots from others")
	}
	if o.Named == o.Origin {
		return errors.New("snapshot cache: Named and Origin are equal")
	}
	for _, s := range []string{o.Origin.EngineBuild, o.Origin.KVTypeK, o.Origin.KVTypeV, o.Named.EngineBuild,
		o.Named.KVTypeK, o.Named.KVTypeV} {
		if len(s) > format.MaxString {
			return fmt.Errorf("snapshot cache: Origin: %q has %d bytes, the limit is %d", s, len(s), format.MaxString)
		}
	}
	if o.Dir != "" && o.DiskBytes <= 0 {
		return fmt.Errorf("snapshot cache: directory %s needs a cap in bytes above 0, not %d", o.Dir, o.DiskBytes)
	}
	if o.RAMBytes == 0 {
		o.RAMBytes = DefaultRAMBytes(hostmem.Read())
	}
	if o.RAMBytes < 0 {
		return fmt.Errorf("snapshot cache: RAMBytes is %d, must not be negative", o.RAMBytes)
	}
	if o.ScanBudget == 0 {
		o.ScanBudget = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	return nil
}
