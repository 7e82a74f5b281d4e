package pull

import (
	"context"
	"errors"
	"os"
	"time"
)

// lockPoll is the time between two looks at a lock that another process holds. flock itself would block a thread that
// no context can end.
const lockPoll = 200 * time.Millisecond

// fileLock is FILE.gguf.lock, held.
type fileLock struct{ f *os.File }

// lockFile takes the lock at path. While another process, or another Puller of this one, holds it, waiting is called
// now and then.
func lockFile(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	for {
		l, err := tryLock(path)
		if l != nil || err != nil {
			return l, err
		}
		waiting()
		timer := time.NewTimer(lockPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// tryLock returns nil, nil when the lock is held.
func tryLock(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	switch mine, err := flock(f); {
	case err == nil && !mine:
		f.Close()
		return nil, nil
	case err != nil:
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	// The holder before may have removed the file after it was opened here: then the lock is one on nothing.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && os.SameFile(held, there) {
			return &fileLock{f}, nil
		}
	}
	f.Close()
	if errors.Is(err, os.ErrNotExist) || err == nil {
		return tryLock(path)
	}
	return nil, err
}

// release gives the lock back. remove takes the file away, too: there is nothing left to lock.
func (l *fileLock) release(remove bool) {
	if remove {
		os.Remove(l.f.Name())
	}
	l.f.Close()
}
