package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/hostmem"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

var (
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("snapshot cache is closed")
	// ErrTooLarge: the part is larger than the host tier.
	ErrTooLarge = errors.New("part is larger than the cache")
	// ErrNoRoom: everything in the host tier is pinned or being restored.
	ErrNoRoom = errors.New("no room: everything in the cache is pinned or in use")
	// ErrNoPrefix: the positions before the part are not cached, so it could never be restored. Begin again at the
	// length Lookup reports.
	ErrNoPrefix = errors.New("the positions before this part are not cached")
	// ErrNotFound: no part has this key.
	ErrNotFound = errors.New("no such part")
	// ErrNoDisk: there is no disk tier; DiskError says why.
	ErrNoDisk = errors.New("no disk tier")
)

// Options open a cache. Only Origin is required.
type Options struct {
	// Origin is the engine and model that compute the cells: a part of another origin is never restored.
	Origin format.Origin
	// RAMBytes caps the host tier, mapped bytes of payloads. 0 = DefaultRAMBytes of the memory free now.
	RAMBytes int64
	// Dir is the disk tier's directory, made with mode 0700; one that others can reach is refused. "" = no disk tier.
	Dir string
	// DiskBytes caps the files in Dir; required with it.
	DiskBytes int64
	// QueueBytes caps what may wait to be written; beyond it parts stay in memory only and are counted as dropped.
	// 0 = a quarter of RAMBytes.
	QueueBytes int64
	// WholeParts: the model's memory cannot drop a range of positions (sliding window, recurrent), so a match must
	// end where a part ends.
	WholeParts bool
	// ScanBudget is how long Open may read headers; the rest is read in the background. 0 = 2 s.
	ScanBudget time.Duration
	// Seed of the index's hashes; 0 = random. For tests.
	Seed uint64
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Failed is told of every file that is damaged and of every operation on the disk that fails; nil = nobody is. It
	// is called with the cache's lock held: it must not block, and not call the cache.
	Failed func(what string, err error)
	// FS is the file system; nil = the real one.
	FS FS
}

// hostShare: the host tier's default is this part of what is free. What is free now must also hold other programs that
// start later, and the machine must not swap: swapping costs more than any prefix saves.
const hostShare = 4

// DefaultRAMBytes is the host tier's default cap: a quarter of what programs can take without pushing others out. 0
// (no host tier) when the system does not say what is free: --cache-ram is then needed.
func DefaultRAMBytes(m hostmem.Memory) int64 { return int64(m.Available / hostShare) }

func (o *Options) fill() error {
	if o.Origin.Fingerprint == (format.Hash{}) {
		return errors.New("snapshot cache: Origin.Fingerprint is required: without it a snapshot of another model could be restored")
	}
	for _, s := range []string{o.Origin.EngineBuild, o.Origin.KVTypeK, o.Origin.KVTypeV} {
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
	if o.QueueBytes == 0 {
		o.QueueBytes = o.RAMBytes / 4
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
