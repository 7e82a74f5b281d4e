package bench

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// soakFolder returns the snapshot folder of the model that is always loaded.
func (r *soakRun) soakFolder() string { return filepath.Join(r.cache, soakModel) }

// lasting draws the duration of a fault, 0.5 to 1.5 times its mean.
func (r *soakRun) lasting(rng *rand.Rand) time.Duration {
	return time.Duration((0.5 + rng.Float64()) * float64(r.Fault))
}

// diskFault damages files, cuts them off, deletes them, or moves their folder away for a while.
func (r *soakRun) diskFault(rng *rand.Rand) error {
	r.fault.Lock()
	defer r.fault.Unlock()
	if rng.IntN(3) == 0 {
		away := r.soakFolder() + ".away"
		if err := os.Rename(r.soakFolder(), away); err != nil {
			return err
		}
		time.Sleep(r.lasting(rng))
		return os.Rename(away, r.soakFolder())
	}
	files, err := snapshotsIn(r.soakFolder())
	if err != nil {
		return err
	}
	for range min(3, len(files)) {
		i := rng.IntN(len(files))
		if err := damage(rng, files[i]); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been evicted
			return err
		}
		files = slices.Delete(files, i, i+1)
	}
	return nil
}

// snapshotsIn returns the complete snapshots of a folder.
func snapshotsIn(folder string) (files []string, err error) {
	names, err := os.ReadDir(folder)
	for _, n := range names {
		if strings.HasSuffix(n.Name(), format.Suffix) {
			files = append(files, filepath.Join(folder, n.Name()))
		}
	}
	return files, err
}

// damage changes a byte of a file, cuts it off or deletes it.
func damage(rng *rand.Rand, path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	at := rng.Int64N(info.Size())
	switch rng.IntN(3) {
	case 0:
		return os.Remove(path)
	case 1:
		return os.Truncate(path, at)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err = f.ReadAt(b[:], at); err == nil {
		b[0] ^= byte(1 + rng.IntN(255))
		_, err = f.WriteAt(b[:], at)
	}
	return errors.Join(err, f.Close())
}

// fabricFault makes the store silent for a while, or ends it and starts it again, empty.
func (r *soakRun) fabricFault(rng *rand.Rand) error {
	r.fault.Lock()
	defer r.fault.Unlock()
	if rng.IntN(2) == 0 {
		err := r.store.signal(syscall.SIGSTOP)
		time.Sleep(r.lasting(rng))
		return errors.Join(err, r.store.signal(syscall.SIGCONT))
	}
	r.store.kill()
	time.Sleep(r.lasting(rng) / 2)
	return r.store.start()
}

// frozen records that processes are stopped (SIGSTOP).
type frozen struct {
	mu    sync.Mutex
	times int // that processes were stopped
	now   bool
}

// during reports whether processes were stopped at any time since count returned before.
func (f *frozen) during(before int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now || f.times != before
}

func (f *frozen) set(now bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now = now; now {
		f.times++
	}
}

func (f *frozen) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.times
}

// clockJump stops one process of the daemon, or all of them, for a while: when they continue, their clocks have jumped,
// as after a machine's sleep.
func (r *soakRun) clockJump(rng *rand.Rand) error {
	r.fault.Lock()
	defer r.fault.Unlock()
	pids, err := r.p.Processes()
	if err != nil {
		return err
	}
	if i := rng.IntN(len(pids) + 1); i < len(pids) {
		pids = pids[i : i+1]
	}
	r.frozen.set(true)
	defer r.frozen.set(false)
	for _, pid := range pids {
		if serr := syscall.Kill(pid, syscall.SIGSTOP); serr == nil {
			// A model that is being unloaded may have ended.
			defer func() { syscall.Kill(pid, syscall.SIGCONT) }()
		} else if !errors.Is(serr, syscall.ESRCH) {
			err = errors.Join(err, serr)
		}
	}
	time.Sleep(r.lasting(rng))
	return err
}
